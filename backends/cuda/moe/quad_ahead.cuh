// SPDX-License-Identifier: Apache-2.0
// What the first product of the experts of few rows brings to the second-level cache before its teams request boxes.
// For these the list must be made, and places in it found (docs/evidence/cuda-even-shares.md has the times). These
// requests need neither, so memory is busy meanwhile.
#pragma once

#include "common/pin.cuh"
#include "common/wgmma.cuh"
#include "moe_quads.h"

namespace gpu {

#ifdef SWY_HOPPER

constexpr uint32_t kLine = 128, kMostOfWeight = 1u << 20;  // bytes

// Brings a weight, at most a megabyte: more would delay the kernel in front. `thread`: of the `threads` that call this.
__device__ inline void prefetch_weight(const Weight& w, uint32_t thread, uint32_t threads) {
  const auto prefetch = [&](const void* from, uint32_t bytes) {
#pragma unroll 1
    for (uint32_t at = thread * kLine; at < min(bytes, kMostOfWeight); at += threads * kLine) {
      prefetch_line(static_cast<const uint8_t*>(from) + at);
    }
  };
  prefetch(w.data, w.rows * w.row_bytes);
  prefetch(w.scales, w.rows * w.groups * 2);
  if (w.offsets != nullptr) prefetch(w.offsets, w.rows * w.groups * 2);
}

// The weights that do not depend on the choice. Multiprocessors take turns at the lines.
__device__ inline void prefetch_shared_expert(const Mixture& m) {
  if (m.shared_width == 0) return;
  const uint32_t thread = threadIdx.x * gridDim.x + blockIdx.x, threads = gridDim.x * blockDim.x;
  prefetch_weight(m.shared_gate, thread, threads);
  prefetch_weight(m.shared_up, thread, threads);
  prefetch_weight(m.shared_down, thread, threads);
}

// A row of gate and up for a thread of the kernel, in the order of pairs: its first line is part of the first box of
// some team.
class ChosenRow {
 public:
  __device__ explicit ChosenRow(const Mixture& m) {
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    pair_ = thread / (2 * m.width), row_ = thread % (2 * m.width);
    pin(pair_), pin(row_);
  }
  // With the choice of `rows` rows. An expert that was chosen several times is requested as often.
  __device__ void prefetch(const Mixture& m, const Quads& q, uint32_t rows) const {
    if (pair_ >= rows * m.top_k) return;
    const uint64_t row = uint64_t{__ldcg(q.ids + pair_)} * 2 * m.width + row_;
    prefetch_line(m.gate_up.data + row * m.gate_up.row_bytes);
  }

 private:
  uint32_t pair_, row_;
};

#endif

}  // namespace gpu
