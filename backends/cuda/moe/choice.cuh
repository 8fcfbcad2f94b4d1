// SPDX-License-Identifier: Apache-2.0
// The router's choice by one block, from logits of up to 256 experts: the largest; of equal ones the lowest id.
#pragma once

#include "common/warp_choice.cuh"

namespace gpu {

constexpr uint32_t kChoiceThreads = 256, kMostChosen = 8;

// The softmax over the lanes of a warp, of numbers of which the largest is 0.
__device__ inline float choice_weight(float above_best) {
  const float p = expf(above_best);
  return p / warp_sum(p);
}

struct alignas(16) Chosen {
  uint32_t candidate_keys[kChoiceThreads / 32 * kMostChosen];  // the best of each warp's experts, in order
  uint32_t candidates[kChoiceThreads / 32 * kMostChosen];
  uint32_t ids[kMostChosen], keys[kMostChosen];

  // How far the lane-th chosen expert's logit lies above the largest: at most 0, and -infinity for lanes from top_k on.
  __device__ float above_best(uint32_t top_k) const {
    const uint32_t lane = threadIdx.x % 32;
    return lane < top_k ? key_float(keys[lane]) - key_float(keys[0]) : -INFINITY;
  }
  // exp(scale * logit) of the lane-th chosen expert, divided by the sum over the first top_k; 0 for further lanes, also
  // with a scale of 0. All lanes of a warp must call this.
  __device__ float weight(uint32_t top_k, float scale = 1) const {
    return choice_weight(fmaxf(scale * above_best(top_k), -INFINITY));
  }
};

// Thread i of the first 256 passes the logit of expert i; `valid` for existing experts, of which there are at least
// top_k. Every expert counts the larger keys: among those of its warp, and if it is among the best there, among the
// best of all. All threads of the block must call this.
template <uint32_t kThreads = kChoiceThreads>
__device__ inline void choose(float logit, bool valid, uint32_t top_k, Chosen& chosen) {
  const bool chooses = kThreads == kChoiceThreads || threadIdx.x < kChoiceThreads;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, key = valid ? float_key(logit) : 0;
  if (chooses) {
    uint32_t ahead = 0;
#pragma unroll
    for (uint32_t j = 0; j < 32; ++j) ahead += __shfl_sync(kAll, key, j) > key ? 1 : 0;
    if (__reduce_or_sync(kAll, 1u << ahead) != kAll) {  // some keys agree
#pragma unroll 1
      for (uint32_t j = 0; j < 32; ++j) ahead += __shfl_sync(kAll, key, j) == key && j < lane ? 1 : 0;
    }
    if (ahead < kMostChosen) {
      chosen.candidate_keys[warp * kMostChosen + ahead] = key;
      chosen.candidates[warp * kMostChosen + ahead] = threadIdx.x;
    }
  }
  __syncthreads();
  // Four lanes per candidate of this warp, each comparing with those of two warps. Of equal keys the lower warp's comes
  // first; the order inside the candidate's own warp is known.
  if (chooses) {
    const uint32_t own = warp * kMostChosen + lane / 4, mine = chosen.candidate_keys[own];
    uint32_t ahead = 0;
#pragma unroll
    for (uint32_t j = 0; j < 2; ++j) {
      const uint32_t other = lane % 4 * 2 + j, least = mine + (other < warp ? 0 : 1);
      const auto* keys = reinterpret_cast<const uint4*>(chosen.candidate_keys + other * kMostChosen);
      const uint4 k = keys[0], l = keys[1];
      const uint32_t those = (k.x >= least ? 1 : 0) + (k.y >= least ? 1 : 0) + (k.z >= least ? 1 : 0) +
                             (k.w >= least ? 1 : 0) + (l.x >= least ? 1 : 0) + (l.y >= least ? 1 : 0) +
                             (l.z >= least ? 1 : 0) + (l.w >= least ? 1 : 0);
      ahead += other == warp ? lane / 4 : those;
    }
    ahead += __shfl_xor_sync(kAll, ahead, 1);
    ahead += __shfl_xor_sync(kAll, ahead, 2);
    if (lane % 4 == 0 && ahead < top_k) chosen.ids[ahead] = chosen.candidates[own], chosen.keys[ahead] = mine;
  }
  __syncthreads();
}

}  // namespace gpu
