// SPDX-License-Identifier: Apache-2.0
// The router's choice, by one subgroup.

#include "router_keys.glsl"

shared uint router_keys[kMostExperts];

shared uint chosen_id[32];
shared float chosen_weight[32];

// The top_k largest of logits [experts], of equal ones the lowest id, into chosen_id; exp(logit) over their sum into
// chosen_weight. All lanes of one subgroup must call this; the others wait at a barrier. A lane keeps up to kHeld keys
// in registers, and the others in shared memory.
const uint kHeld = 8;
void choose(uint64_t logits, uint experts, uint top_k) {
  uint lane = gl_SubgroupInvocationID, held[kHeld], own[kHeld];
  [[unroll]] for (uint i = 0; i < kHeld; ++i) {
    own[i] = lane + i * gl_SubgroupSize;
    held[i] = own[i] < experts ? float_key(Floats(logits).at[own[i]]) : 0;
  }
  uint rest = kHeld * gl_SubgroupSize;
  for (uint e = rest + lane; e < experts; e += gl_SubgroupSize) router_keys[e] = float_key(Floats(logits).at[e]);
  float top = 0, sum = 0;
  for (uint k = 0; k < top_k; ++k) {
    uint best = 0, at = experts - 1;
    [[unroll]] for (uint i = 0; i < kHeld; ++i) {
      if (held[i] > best) {
        best = held[i];
        at = own[i];
      }
    }
    for (uint e = rest + lane; e < experts; e += gl_SubgroupSize) {
      uint key = router_keys[e];  // this lane's own writes
      if (key > best) {
        best = key;
        at = e;
      }
    }
    uint most = subgroupMax(best), id = subgroupMin(best == most ? at : experts - 1);
    float logit = key_float(most);
    if (k == 0) top = logit;
    float weight = exp(logit - top);
    sum += weight;
    [[unroll]] for (uint i = 0; i < kHeld; ++i) held[i] = own[i] == id ? 0 : held[i];
    if (id % gl_SubgroupSize == lane) {
      if (id >= rest) router_keys[id] = 0;
      chosen_id[k] = id;
      chosen_weight[k] = weight;
    }
  }
  subgroupMemoryBarrierShared();
  subgroupBarrier();
  for (uint k = lane; k < top_k; k += gl_SubgroupSize) chosen_weight[k] /= sum;
}
