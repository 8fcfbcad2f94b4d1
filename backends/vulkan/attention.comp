// SPDX-License-Identifier: Apache-2.0
// ATTENTION, the products: softmax(q k^T) v of kQ query heads that share a KV head, for one row.
//
// gl_WorkGroupID.x: split, a fixed number of positions; .y: KV head and group of kQ heads; .z: row. With one split the
// result goes to y, times the gate; otherwise parts [rows, groups, splits, kQ, head_dim + 2] get the unnormalised
// values, the largest score and the sum of weights.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "attention.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 6) const uint kWindow = 0;    // positions that a row reads; 0: all
layout(constant_id = 7) const uint kSinkType = 0;  // 0: no sinks
layout(push_constant, std430) uniform Push {
  uint64_t q, ready, pages, y, parts, step;
  uint64_t sinks;  // [heads]: one more score of each row, without a value
  uint heads, kv_heads, split_positions;
  float scale;  // of what `ready` has
};
#define KEY_FOUR(key, c, position) load_four(key, c)
#define VALUE_FOUR(value, c, position) load_four(value, c)
#include "attention_products.glsl"

void main() {
  uint row = gl_WorkGroupID.z, lane = gl_SubgroupInvocationID, thread = gl_LocalInvocationIndex;
  Step s = Step(step);
  if (row >= s.rows) return;
  uint per_kv = heads / kv_heads, groups = (per_kv + kQ - 1) / kQ;
  uint kv = gl_WorkGroupID.y / groups, first = gl_WorkGroupID.y % groups * kQ;  // among the heads of kv
  uint here = min(kQ, per_kv - first), first_head = kv * per_kv + first;
  uint seq = step_word(step, s.row_seq_at, row), context = step_word(step, s.row_position_at, row) + 1;
  uint64_t out_row = y + (uint64_t(row) * heads + first_head) * kHeadDim * 4;
  if (step_word(step, s.seq_active_at, seq) == 0) {
    for (uint i = thread; i < here * kHeadDim; i += 256) Floats(out_row).at[i] = 0;
    return;
  }
  uint begin = gl_WorkGroupID.x * split_positions;
  if (begin >= context) return;
  uint beyond = begin + min(context - begin, split_positions);
  begin = max(begin, first_read(context, kWindow));
  if (begin >= beyond) return;
  uint count = beyond - begin, each = (count + gl_NumSubgroups - 1) / gl_NumSubgroups;
  uint position = begin + gl_SubgroupID * each, end = min(position + each, begin + count);
  [[unroll]] for (uint h = 0; h < kQ; ++h) {
    [[unroll]] for (uint c = 0; c < kC; ++c) {
      uint at = lane + gl_SubgroupSize * c;
      bool there = 4 * at < kHeadDim && h < here;
      query[h * kC + c] =
          there ? Float4s(ready + (uint64_t(row) * heads + first_head + h) * kHeadDim * 4).at[at] * scale : vec4(0);
    }
  }
  attend(pages, step, seq, kv_heads, kv, position, end);
  join_subgroups((count + each - 1) / each);
  const uint unit = kHeadDim + 2;
  uint64_t part = parts + ((uint64_t(row) * gl_NumWorkGroups.y + gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x) *
                              kQ * unit * 4;
  [[unroll]] for (uint h = 0; h < kQ; ++h) {
    if (h >= here) continue;
    float all = total[h];
    if (kSinkType != 0) all += exp(plain_at(sinks, kSinkType, first_head + h) - best[h]);
    for (uint i = thread; i < kHeadDim; i += 256) {
      float v = joined[h * (kHeadDim / 4) + i / 4][i % 4];
      if (gl_NumWorkGroups.x == 1) {
        Floats(out_row).at[h * kHeadDim + i] = v / all * gate_of(q, row, heads, first_head + h, i);
      } else {
        Floats(part).at[h * unit + i] = v;
      }
    }
    if (gl_NumWorkGroups.x != 1 && thread == 0) {
      Floats(part).at[h * unit + kHeadDim] = best[h];
      Floats(part).at[h * unit + kHeadDim + 1] = total[h];
    }
  }
}
