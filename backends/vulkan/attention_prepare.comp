// SPDX-License-Identifier: Apache-2.0
// ATTENTION, before the products: ready [rows, heads, head_dim] = q normed, rotated and scaled; k normed and rotated,
// and v, go to their pages. Without norms, q and k rotate as they come. A subgroup per head of q, k or v;
// gl_WorkGroupID.y: rows.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "attention.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 3) const uint kTypes = 0;   // of the norms of q and k, 4 bits each; 0: there are none
layout(constant_id = 4) const uint kRotary = 0;  // elements that rotate
layout(constant_id = 5) const bool kTable = false;
layout(constant_id = 6) const float kRopeScale = 1.0;
layout(push_constant, std430) uniform Push {
  uint64_t q, k, v, q_norm, k_norm, ready, pages;
  uint64_t turns;  // [rotary / 2]
  uint64_t step;
  uint heads, kv_heads;
  float scale, eps, bias;
};

#include "attention_rotate.glsl"

void main() {
  uint head = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID, lane = gl_SubgroupInvocationID;
  if (head >= heads + 2 * kv_heads) return;
  Step s = Step(step);
  for (uint row = gl_WorkGroupID.y; row < s.rows; row += gl_NumWorkGroups.y) {
    uint seq = step_word(step, s.row_seq_at, row), position = step_word(step, s.row_position_at, row);
    bool is_q = head < heads, is_k = !is_q && head < heads + kv_heads;
    if (!is_q && step_word(step, s.seq_active_at, seq) == 0) continue;
    uint kv = is_q ? 0 : (head - heads) % kv_heads;
    uint64_t from = is_q ? q + (uint64_t(row) * heads + head) * (kGated ? 2 : 1) * kHeadDim * 4
                         : (is_k ? k : v) + (uint64_t(row) * kv_heads + kv) * kHeadDim * 4;
    uint64_t to = is_q ? ready + (uint64_t(row) * heads + head) * kHeadDim * 4
                       : key_at(pages, step, seq, kv_heads, kv, position);
    float squares = 0, norm_scale = 1;
    if (kTypes != 0 && (is_q || is_k)) {
      for (uint i = lane; i < kHeadDim; i += gl_SubgroupSize) {
        float x = Floats(from).at[i];
        squares = fma(x, x, squares);
      }
      norm_scale = inversesqrt(subgroupAdd(squares) / float(kHeadDim) + eps);
    }
    if (!is_q && !is_k) to += uint64_t(s.page_size) * kHeadDim * kBytes;
    for (uint c = lane; 4 * c < kHeadDim; c += gl_SubgroupSize) {
      vec4 x;
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        uint i = 4 * c + j;
        if (is_q) x[j] = element(from, q_norm, kTypes & 15, i, norm_scale, position) * scale;
        if (is_k) x[j] = element(from, k_norm, kTypes >> 4, i, norm_scale, position);
        if (!is_q && !is_k) x[j] = Floats(from).at[i];
      }
      if (is_q) {
        Float4s(to).at[c] = x;
      } else {
        store_four(to, c, x);
      }
    }
  }
}
