// SPDX-License-Identifier: Apache-2.0
// DELTA_RULE, before the rule (gated_delta.comp): mixed [rows, channels] = qkv with q and k to unit length, q also times
// key_dim^-1/2; gate [rows, value_heads] = beta, exp(g). A subgroup per head of q, k or v; gl_WorkGroupID.y: rows.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "gated_delta.glsl"
layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push {
  uint64_t qkv, beta, g, mixed, gate, step;
  uint key_heads, value_heads;
  float l2_eps;
};

void main() {
  uint keys = key_heads * kKeyDim, channels = 2 * keys + value_heads * kValueDim;
  uint head = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID, lane = gl_SubgroupInvocationID;
  if (head >= 2 * key_heads + value_heads) return;
  bool is_key = head < 2 * key_heads;
  uint dim = is_key ? kKeyDim : kValueDim;
  uint first = is_key ? head * kKeyDim : 2 * keys + (head - 2 * key_heads) * kValueDim;
  uint rows = Step(step).rows;
  for (uint row = gl_WorkGroupID.y; row < rows; row += gl_NumWorkGroups.y) {
    uint64_t at = (uint64_t(row) * channels + first) * 4;
    float scale = 1;
    if (is_key) {
      float squares = 0;
      for (uint i = lane; i < dim; i += gl_SubgroupSize) {
        float u = Floats(qkv + at).at[i];
        squares = fma(u, u, squares);
      }
      scale = inversesqrt(subgroupAdd(squares) + l2_eps);
      if (head < key_heads) scale *= inversesqrt(float(kKeyDim));
    } else if (lane == 0) {
      uint64_t of = (uint64_t(row) * value_heads + head - 2 * key_heads) * 4;
      Float2s(gate + 2 * of).at[0] = vec2(Floats(beta + of).at[0], exp(Floats(g + of).at[0]));
    }
    for (uint i = lane; i < dim; i += gl_SubgroupSize) Floats(mixed + at).at[i] = Floats(qkv + at).at[i] * scale;
  }
}
