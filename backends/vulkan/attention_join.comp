// SPDX-License-Identifier: Apache-2.0
// ATTENTION, if a row is divided into splits: joins them (attention.comp), and multiplies by the gate.
// gl_WorkGroupID.x: head; .y: row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "attention.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 3) const uint kQ = 4;
layout(constant_id = 4) const uint kWindow = 0;    // as in attention.comp
layout(constant_id = 5) const uint kSinkType = 0;
layout(push_constant, std430) uniform Push {
  uint64_t q, y, parts, step, sinks;
  uint heads, kv_heads, split_positions, splits;
};

void main() {
  uint head = gl_WorkGroupID.x, row = gl_WorkGroupID.y;
  Step s = Step(step);
  if (row >= s.rows) return;
  if (step_word(step, s.seq_active_at, step_word(step, s.row_seq_at, row)) == 0) return;
  uint context = step_word(step, s.row_position_at, row) + 1, used = (context + split_positions - 1) / split_positions;
  uint unused = first_read(context, kWindow) / split_positions;  // splits before the window
  uint per_kv = heads / kv_heads, groups = (per_kv + kQ - 1) / kQ, among = head % per_kv;
  uint group = head / per_kv * groups + among / kQ;
  const uint unit = kHeadDim + 2;
  uint64_t stride = kQ * unit * 4;
  uint64_t part = parts + (uint64_t(row) * kv_heads * groups + group) * splits * stride + among % kQ * unit * 4;
  float best = -3.0e38, total = 0;
  for (uint i = unused + gl_SubgroupInvocationID; i < used; i += gl_SubgroupSize) {
    best = max(best, Floats(part + i * stride).at[kHeadDim]);
  }
  best = subgroupMax(best);
  for (uint i = unused + gl_SubgroupInvocationID; i < used; i += gl_SubgroupSize) {
    uint64_t at = part + i * stride;
    total = fma(Floats(at).at[kHeadDim + 1], exp(Floats(at).at[kHeadDim] - best), total);
  }
  total = subgroupAdd(total);
  if (kSinkType != 0) total += exp(plain_at(sinks, kSinkType, head) - best);
  for (uint i = gl_LocalInvocationIndex; i < kHeadDim; i += 256) {
    float v = 0;
    for (uint n = unused; n < used; ++n) {
      uint64_t at = part + n * stride;
      v = fma(exp(Floats(at).at[kHeadDim] - best), Floats(at).at[i], v);
    }
    Floats(y + (uint64_t(row) * heads + head) * kHeadDim * 4).at[i] = v / total * gate_of(q, row, heads, head, i);
  }
}
