// SPDX-License-Identifier: Apache-2.0
// HEAD_RMS_NORM: y [rows, heads, head_dim] = rms_norm(x) * (bias + w) per head; GATED_RMS_NORM: times silu(z). A subgroup
// per head; gl_WorkGroupID.y: rows.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kForm = F32;  // of the weight
layout(constant_id = 1) const bool kGated = false;
layout(push_constant, std430) uniform Push {
  uint64_t x, z, w, y, step;
  uint heads, head_dim, domain;
  float eps, bias;
};

void main() {
  uint head = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID, lane = gl_SubgroupInvocationID;
  if (head >= heads) return;
  uint rows = step_rows(step, domain);
  for (uint row = gl_WorkGroupID.y; row < rows; row += gl_NumWorkGroups.y) {
    uint64_t at = (uint64_t(row) * heads + head) * head_dim * 4;
    float squares = 0;
    for (uint i = lane; i < head_dim; i += gl_SubgroupSize) {
      float v = Floats(x + at).at[i];
      squares = fma(v, v, squares);
    }
    float scale = inversesqrt(subgroupAdd(squares) / float(head_dim) + eps);
    for (uint i = lane; i < head_dim; i += gl_SubgroupSize) {
      float v = Floats(x + at).at[i] * scale * (bias + plain_at(w, kForm & 0xff, i));
      if (kGated) v *= silu(Floats(z + at).at[i]);
      Floats(y + at).at[i] = v;
    }
  }
}
