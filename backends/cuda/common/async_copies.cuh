// SPDX-License-Identifier: Apache-2.0
// What boxes.cuh asks the copy engine for, brought by cp.async: for cards without a copy engine, or with too little
// shared memory for blocks that request everything at once. All threads of a warp take part. Their data has arrived
// after arrived_async() and a meeting of those threads.
#pragma once

#include "boxes.cuh"

namespace gpu {

__device__ inline void copy_async(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Waits for all copies of the calling thread.
__device__ inline void arrived_async() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// kRows rows of a weight from `row` on, 256 columns from 256 `slice` on, as a box with the copy engine's pattern. In
// the place of rows behind `last` that one comes again.
template <uint32_t kRows>
__device__ inline void copy_box_async(void* to, const Weight& w, uint32_t row, uint32_t slice,
                                      uint32_t last = UINT32_MAX) {
  const uint32_t lane = threadIdx.x % 32, piece = lane % 8;
  const uint8_t* from = w.data + slice * kBoxBytes + piece * 16;
#pragma unroll
  for (uint32_t i = 0; i < kRows / 4; ++i) {
    const uint32_t in = 4 * i + lane / 8;
    copy_async(shared_at(to) + in * kBoxBytes + (piece ^ in % 8) * 16,
               from + uint64_t{min(row + in, last)} * w.row_bytes);
  }
}
// As Asked::ask_scales, by `threads` threads of which this is number `thread`. Only the first `there` rows exist.
__device__ inline void copy_scales_async(void* to, const Weight& w, uint64_t row, uint32_t rows, uint32_t thread,
                                         uint32_t threads, uint32_t there = UINT32_MAX) {
  const uint32_t bytes = rows * w.groups * 2, all = scales_bytes(w, rows), end = min(there, rows) * w.groups * 2;
  for (uint32_t i = 16 * thread; i < all; i += 16 * threads) {
    const uint32_t at = i < bytes ? i : i - bytes;
    const uint16_t* from = (i < bytes ? w.scales : w.offsets) + row * w.groups + at / 2;
    if (at + 16 <= end) {
      copy_async(shared_at(to) + i, from);
      continue;
    }
    for (uint32_t k = 0; at + 2 * k < end; ++k) static_cast<uint16_t*>(to)[i / 2 + k] = from[k];
  }
}

}  // namespace gpu
