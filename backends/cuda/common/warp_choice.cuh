// SPDX-License-Identifier: Apache-2.0
// The router's choice by one warp, from logits of any number of experts: the largest; of equal ones the lowest id.
#pragma once

#include "device_code.cuh"

namespace gpu {

// Larger floats have larger keys; none is 0.
__device__ inline uint32_t float_key(float x) {
  const uint32_t bits = __float_as_uint(x);
  return max((bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u, 1u);
}
// The inverse of float_key.
__device__ inline float key_float(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key);
}

// The top_k largest of logits [experts]; exp(logit) over their sum or, with kAbove, how far each logit is above the
// largest, at most 0. `keys` [experts]. kLane: the most experts per lane, held in registers; 0: any number, held in
// `keys`.
template <int kLane, bool kAbove = false>
__device__ inline void choose_by_warp(const float* logits, uint32_t experts, uint32_t top_k, uint32_t* keys,
                                      int32_t* ids, float* p) {
  const uint32_t lane = threadIdx.x % 32;
  uint32_t held[kLane == 0 ? 1 : kLane];
  if constexpr (kLane == 0) {
    for (uint32_t e = lane; e < experts; e += 32) keys[e] = float_key(__ldcg(logits + e));
  } else {
#pragma unroll
    for (int i = 0; i < kLane; ++i) {
      const uint32_t e = lane + 32 * i;
      held[i] = e < experts ? float_key(__ldcg(logits + e)) : 0;
    }
  }
  float top = 0, sum = 0, mine = 0;
  uint32_t mine_id = 0;
  for (uint32_t k = 0; k < top_k; ++k) {
    uint32_t best = 0, at = experts - 1;
    if constexpr (kLane == 0) {
      for (uint32_t e = lane; e < experts; e += 32) {
        if (keys[e] > best) best = keys[e], at = e;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kLane; ++i) {
        if (held[i] > best) best = held[i], at = lane + 32 * i;
      }
    }
    const uint32_t most = __reduce_max_sync(kAll, best), id = __reduce_min_sync(kAll, best == most ? at : experts - 1);
    const float logit = key_float(most);
    if (k == 0) top = logit;
    const float weight = kAbove ? logit - top : expf(logit - top);
    sum += weight;
    if (k == lane) mine = weight, mine_id = id;
    if constexpr (kLane == 0) {
      if (id % 32 == lane) keys[id] = 0;
    } else {
#pragma unroll
      for (int i = 0; i < kLane; ++i) held[i] = id == lane + 32 * i ? 0 : held[i];
    }
  }
  if (lane >= top_k) return;
  p[lane] = kAbove ? mine : mine / sum;
  ids[lane] = static_cast<int32_t>(mine_id);
}

}  // namespace gpu
