// SPDX-License-Identifier: Apache-2.0
// What the products of the experts of few rows bring to the second-level cache before their teams request boxes. For
// these the list must be made, and places in it found (docs/evidence/cuda-even-shares.md has the times). These requests
// need neither, so memory is busy meanwhile.
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

// A line of a chosen expert's weight for a thread of the kernel, in the order of pairs: `lines` of an expert, `apart`
// bytes from one to the next.
class ChosenLine {
 public:
  __device__ ChosenLine(uint32_t lines, uint32_t apart) {
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    pair_ = thread / lines, at_ = thread % lines * apart;
    pin(pair_), pin(at_);
  }
  // The first line of each row of gate and up: most are part of the first boxes.
  static __device__ ChosenLine of_gate_up(const Mixture& m) { return {2 * m.width, m.gate_up.row_bytes}; }
  // The first lines of an expert's `down`, as many as of gate and up, or all if it has fewer.
  static __device__ ChosenLine of_down(const Mixture& m) {
    return {min(2 * m.width, m.hidden * m.down.row_bytes / kLine), kLine};
  }
  // With the choice of `rows` rows; an expert has `rows_of_expert` of the weight. One that was chosen several times is
  // requested as often.
  __device__ void prefetch(const Mixture& m, const Quads& q, const Weight& w, uint32_t rows_of_expert,
                           uint32_t rows) const {
    if (pair_ >= rows * m.top_k) return;
    const uint64_t first = uint64_t{__ldcg(q.ids + pair_)} * rows_of_expert;
    prefetch_line(w.data + first * w.row_bytes + at_);
  }

 private:
  uint32_t pair_, at_;
};

#endif

}  // namespace gpu
