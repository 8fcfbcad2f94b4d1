// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA for prompts, after the rule: y = rms_norm(o) * w * silu(z), in place. A subgroup per value head;
// gl_WorkGroupID.y: rows. Rows of inactive sequences become 0. Rows that stay pending are kept: qkv, b and a.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "gated_delta.glsl"
layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push {
  uint64_t y, z, norm, step, qkv, b, a, pending;
  uint value_heads;
  float norm_eps;
  uint channels, pending_rows;
};

void keep_row(Sequence s, uint row) {
  uint width = channels + 2 * value_heads;
  uint64_t to = pending + (uint64_t(s.write) * pending_rows + row - s.first) * width * 4;
  for (uint i = gl_WorkGroupID.x * 256 + gl_LocalInvocationIndex; i < width; i += gl_NumWorkGroups.x * 256) {
    uint64_t from = qkv + (uint64_t(row) * channels + i) * 4;
    if (i >= channels) from = b + (uint64_t(row) * value_heads + i - channels) * 4;
    if (i >= channels + value_heads) from = a + (uint64_t(row) * value_heads + i - channels - value_heads) * 4;
    Floats(to).at[i] = Floats(from).at[0];
  }
}

void main() {
  for (uint row = gl_WorkGroupID.y; pending != 0 && row < Step(step).rows; row += gl_NumWorkGroups.y) {
    Sequence s = run_of(step, step_word(step, Step(step).row_seq_at, row), pending);
    if (s.live && s.pends) keep_row(s, row);
  }
  uint head = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID, lane = gl_SubgroupInvocationID;
  if (head >= value_heads) return;
  uint rows = Step(step).rows;
  for (uint row = gl_WorkGroupID.y; row < rows; row += gl_NumWorkGroups.y) {
    uint64_t at = (uint64_t(row) * value_heads + head) * kValueDim * 4;
    bool live = step_word(step, Step(step).seq_active_at, step_word(step, Step(step).row_seq_at, row)) != 0;
    float squares = 0;
    for (uint i = lane; i < kValueDim; i += gl_SubgroupSize) {
      float o = Floats(y + at).at[i];
      squares = fma(o, o, squares);
    }
    float scale = inversesqrt(subgroupAdd(squares) / float(kValueDim) + norm_eps);
    for (uint i = lane; i < kValueDim; i += gl_SubgroupSize) {
      float o = Floats(y + at).at[i] * scale * plain_at(norm, kNormType, i) * silu(Floats(z + at).at[i]);
      Floats(y + at).at[i] = live ? o : 0.0;
    }
  }
}
