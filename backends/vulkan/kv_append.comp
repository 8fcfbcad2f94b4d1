// SPDX-License-Identifier: Apache-2.0
// KV_APPEND: k and v [rows, kv_heads, head_dim] to their pages. gl_WorkGroupID.y: rows.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"
layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push {
  uint64_t k, v, pages, step;
  uint kv_heads, unused;
};

void main() {
  Step s = Step(step);
  const uint fours = kHeadDim / 4;
  for (uint row = gl_WorkGroupID.y; row < s.rows; row += gl_NumWorkGroups.y) {
    uint seq = step_word(step, s.row_seq_at, row);
    if (step_word(step, s.seq_active_at, seq) == 0) continue;
    uint position = step_word(step, s.row_position_at, row);
    uint64_t from = uint64_t(row) * kv_heads * kHeadDim * 4;
    for (uint i = gl_GlobalInvocationID.x; i < kv_heads * fours; i += gl_NumWorkGroups.x * 256) {
      uint64_t key = key_at(pages, step, seq, kv_heads, i / fours, position);
      store_four(key, i % fours, Float4s(k + from).at[i]);
      store_four(key + uint64_t(s.page_size) * kHeadDim * kBytes, i % fours, Float4s(v + from).at[i]);
    }
  }
}
