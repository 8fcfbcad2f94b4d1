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

// kRows rows of a weight from `row` on, 256 columns from 256 `slice` on, as a box with the copy engine's pattern.
template <uint32_t kRows>
__device__ inline void copy_box_async(void* to, const Weight& w, uint64_t row, uint32_t slice) {
  const uint32_t lane = threadIdx.x % 32, piece = lane % 8;
  const uint8_t* from = w.data + (row + lane / 8) * w.row_bytes + slice * kBoxBytes + piece * 16;
#pragma unroll
  for (uint32_t i = 0; i < kRows / 4; ++i) {
    const uint32_t in = 4 * i + lane / 8;
    copy_async(shared_at(to) + in * kBoxBytes + (piece ^ in % 8) * 16, from + uint64_t{4 * i} * w.row_bytes);
  }
}
// As Asked::ask_scales, by `threads` threads of which this is number `thread`.
__device__ inline void copy_scales_async(void* to, const Weight& w, uint64_t row, uint32_t rows, uint32_t thread,
                                         uint32_t threads) {
  const uint32_t bytes = rows * w.groups * 2, all = scales_bytes(w, rows);
  for (uint32_t i = 16 * thread; i < all; i += 16 * threads) {
    const uint16_t* from = i < bytes ? w.scales : w.offsets;
    copy_async(shared_at(to) + i, reinterpret_cast<const char*>(from + row * w.groups) + (i < bytes ? i : i - bytes));
  }
}

}  // namespace gpu
