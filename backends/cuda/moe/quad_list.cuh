// SPDX-License-Identifier: Apache-2.0
// The list that the experts' kernels for few rows work through. Every block makes it itself, from the router's choice.
#pragma once

#include "common/wgmma.cuh"
#include "moe_quads.h"

namespace gpu {

#ifdef SWY_HOPPER

// An entry: expert (`experts` means the shared one), the place of its row 0 (further rows follow), how many pairs, and
// the pairs' rows, one byte each. For i beyond the pairs, an existing pair's values:
__device__ inline uint32_t row_of(uint4 entry, uint32_t i) { return entry.w >> (i < entry.z ? 8 * i : 0) & 255; }
__device__ inline uint32_t place_of(uint4 entry, uint32_t i) { return entry.y + row_of(entry, i); }

// The list in the shared memory of a block of kThreads: up to four rows of an expert per entry, the shared expert's
// entries first.
template <uint32_t kThreads>
class QuadList {
 public:
  static_assert(kThreads > kQuadExperts && kThreads >= kMostQuadRows * kQuadChosen);

  // Preparation before the choice is ready.
  __device__ void begin(const Quads& q) {
    for (uint32_t i = threadIdx.x; i < 2 * kQuadExperts; i += kThreads) (&rows_[0][0])[i] = 0;
    room_ = q.room;
    __syncthreads();
  }
  // The value that this thread passes to make(): the expert of pair threadIdx.x, of most_rows rows.
  static __device__ uint32_t load(const Mixture& m, const Quads& q) {
    return threadIdx.x < q.most_rows * m.top_k ? __ldcg(q.ids + threadIdx.x) : 0;
  }
  // Makes the list from the choice of `rows` rows.
  __device__ void make(const Mixture& m, uint32_t loaded, uint32_t rows) {
    const uint32_t row = threadIdx.x / m.top_k;
    if (row < rows) atomicOr(&rows_[loaded][row / 32], 1u << row % 32);
    __syncthreads();
    const bool shared = threadIdx.x == 0;
    const uint32_t expert = shared ? m.experts : threadIdx.x - 1;
    uint32_t low = 0, high = 0;  // bits of rows
    if (shared && m.shared_width != 0) low = first_bits(min(rows, 32u)), high = first_bits(max(rows, 32u) - 32);
    if (!shared && expert < m.experts) low = rows_[expert][0], high = rows_[expert][1];
    const uint32_t pairs = __popc(low) + __popc(high);
    uint32_t at = before((pairs + kQuad - 1) / kQuad);
    for (uint32_t n = pairs; n != 0; n -= min(n, kQuad)) {
      uint32_t bytes = 0;
#pragma unroll
      for (uint32_t i = 0; i < kQuad; ++i) {
        const bool lower = low != 0;
        const uint32_t word = lower ? low : high, bit = word & (0 - word);
        bytes |= (word != 0 ? __popc(bit - 1) + (lower ? 0 : 32) : 0) << 8 * i;
        low &= ~bit, high &= lower ? ~0u : ~bit;
      }
      entries_[at++] = make_uint2(expert << 8 | min(n, kQuad), bytes);
    }
    __syncthreads();
  }
  __device__ uint32_t size() const { return size_; }
  __device__ uint4 entry(uint32_t i) const {
    const uint2 e = entries_[i];
    return make_uint4(e.x >> 8, (e.x >> 8) * room_, e.x & 255, e.y);
  }

 private:
  static constexpr uint32_t kWarps = kThreads / 32;
  static constexpr uint32_t kMost = (kMostQuadRows * kQuadChosen + (kQuad - 1) * kQuadExperts + kMostQuadRows) / kQuad;
  static constexpr uint32_t kBits = 5;  // of the entries of an expert
  static_assert(kMostQuadRows / kQuad < 1u << kBits && kMostQuadRows <= 64);

  static __device__ uint32_t first_bits(uint32_t n) { return n == 0 ? 0 : ~0u >> (32 - n); }

  // The sum, over earlier threads, of a number of kBits bits; size_ becomes the sum over all threads.
  __device__ uint32_t before(uint32_t mine) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t below = 0, all = 0;
#pragma unroll
    for (uint32_t i = 0; i < kBits; ++i) {
      const uint32_t votes = __ballot_sync(kAll, (mine >> i & 1) != 0);
      below += __popc(votes & ((1u << lane) - 1)) << i;
      all += __popc(votes) << i;
    }
    if (lane == 0) sums_[warp] = all;
    __syncthreads();
    const uint32_t of = lane < kWarps ? sums_[lane] : 0;
    if (warp == 0) size_ = __reduce_add_sync(kAll, of);
    return __reduce_add_sync(kAll, lane < warp ? of : 0) + below;
  }

  uint32_t rows_[kQuadExperts][2];  // of each expert, by bits
  uint32_t sums_[kWarps], room_, size_;
  uint2 entries_[kMost];
};

#endif

}  // namespace gpu
