// SPDX-License-Identifier: Apache-2.0
// ROUTER_TOPK, and the choice of MOE: ids and weights [rows, top_k] from logits [rows, experts]. A workgroup per row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
const uint kMostExperts = 4096;
#include "router.glsl"
layout(local_size_x_id = 0) in;  // a subgroup
layout(push_constant, std430) uniform Push {
  uint64_t logits, ids, weights, step;
  uint experts, top_k, domain;
};

void main() {
  uint row = gl_WorkGroupID.x;
  if (row >= step_rows(step, domain) || gl_SubgroupID != 0) return;
  choose(logits + uint64_t(row) * experts * 4, experts, top_k);
  subgroupMemoryBarrierShared();
  subgroupBarrier();
  for (uint k = gl_SubgroupInvocationID; k < top_k; k += gl_SubgroupSize) {
    Ints(ids).at[row * top_k + k] = int(chosen_id[k]);
    Floats(weights).at[row * top_k + k] = chosen_weight[k];
  }
}
