// ATTENTION, the products: softmax(q k^T) v of kQ query heads that share a KV head, for one row.
//
// gl_WorkGroupID.x: split, so many positions each; .y: KV head and group of kQ heads; .z: row. Subgroups share the positions of
// a split; a lane holds kC parts of four elements of every head. With one split the result goes to y, times the gate;
// else parts [rows, groups, splits, kQ, head_dim + 2] get the unnormalised values, the largest score and the sum of weights.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 3) const uint kQ = 4;
layout(constant_id = 4) const uint kC = 2;
layout(constant_id = 5) const uint kU = 4;  // positions at a time
layout(push_constant, std430) uniform Push {
  uint64_t q, ready, pages, y, parts, step;
  uint heads, kv_heads, split_positions, unused;
};

shared float tops[32 * kQ], sums[32 * kQ];  // of each subgroup
shared vec4 joined[kQ * (kHeadDim / 4)];

const float kNone = -3.0e38;

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
  uint count = min(context - begin, split_positions), each = (count + gl_NumSubgroups - 1) / gl_NumSubgroups;
  uint position = begin + gl_SubgroupID * each, end = min(position + each, begin + count);
  vec4 query[kQ * kC], value[kQ * kC];
  float top[kQ], sum[kQ];
  [[unroll]] for (uint h = 0; h < kQ; ++h) {
    top[h] = kNone;
    sum[h] = 0;
    [[unroll]] for (uint c = 0; c < kC; ++c) {
      uint at = lane + gl_SubgroupSize * c;
      bool there = 4 * at < kHeadDim && h < here;
      query[h * kC + c] =
          there ? Float4s(ready + (uint64_t(row) * heads + first_head + h) * kHeadDim * 4).at[at] : vec4(0);
      value[h * kC + c] = vec4(0);
    }
  }
  uint64_t to_value = uint64_t(s.page_size) * kHeadDim * kBytes;
  for (; position < end; position += kU) {
    uint64_t key[kU];
    vec4 x[kU * kC];
    [[unroll]] for (uint u = 0; u < kU; ++u) {
      key[u] = key_at(pages, step, seq, kv_heads, kv, min(position + u, end - 1));
      [[unroll]] for (uint c = 0; c < kC; ++c) {
        uint at = lane + gl_SubgroupSize * c;
        x[u * kC + c] = 4 * at < kHeadDim ? load_four(key[u], at) : vec4(0);
      }
    }
    float score[kU * kQ];
    [[unroll]] for (uint u = 0; u < kU; ++u) {
      [[unroll]] for (uint h = 0; h < kQ; ++h) {
        float dotted = 0;
        [[unroll]] for (uint c = 0; c < kC; ++c) {
          [[unroll]] for (uint j = 0; j < 4; ++j) dotted = fma(query[h * kC + c][j], x[u * kC + c][j], dotted);
        }
        dotted = subgroupAdd(dotted);
        score[u * kQ + h] = position + u < end ? dotted : kNone;
      }
    }
    [[unroll]] for (uint u = 0; u < kU; ++u) {
      [[unroll]] for (uint c = 0; c < kC; ++c) {
        uint at = lane + gl_SubgroupSize * c;
        x[u * kC + c] = 4 * at < kHeadDim ? load_four(key[u] + to_value, at) : vec4(0);
      }
    }
    [[unroll]] for (uint h = 0; h < kQ; ++h) {
      float best = top[h];
      [[unroll]] for (uint u = 0; u < kU; ++u) best = max(best, score[u * kQ + h]);
      float keep = exp(top[h] - best);
      top[h] = best;
      sum[h] *= keep;
      [[unroll]] for (uint c = 0; c < kC; ++c) value[h * kC + c] *= keep;
      [[unroll]] for (uint u = 0; u < kU; ++u) {
        float weight = position + u < end ? exp(score[u * kQ + h] - best) : 0.0;
        sum[h] += weight;
        [[unroll]] for (uint c = 0; c < kC; ++c) value[h * kC + c] = fma(vec4(weight), x[u * kC + c], value[h * kC + c]);
      }
    }
  }
  // What the subgroups found, joined.
  if (lane == 0) {
    [[unroll]] for (uint h = 0; h < kQ; ++h) {
      tops[gl_SubgroupID * kQ + h] = top[h];
      sums[gl_SubgroupID * kQ + h] = sum[h];
    }
  }
  for (uint i = thread; i < kQ * (kHeadDim / 4); i += 256) joined[i] = vec4(0);
  barrier();
  float best[kQ], total[kQ];
  [[unroll]] for (uint h = 0; h < kQ; ++h) {
    best[h] = kNone;
    total[h] = 0;
    for (uint g = 0; g < gl_NumSubgroups; ++g) best[h] = max(best[h], tops[g * kQ + h]);
    for (uint g = 0; g < gl_NumSubgroups; ++g) total[h] = fma(sums[g * kQ + h], exp(tops[g * kQ + h] - best[h]), total[h]);
  }
  uint busy = (count + each - 1) / each;  // subgroups with positions
  for (uint g = 0; g < busy; ++g) {
    if (g == gl_SubgroupID) {
      [[unroll]] for (uint h = 0; h < kQ; ++h) {
        float share = exp(top[h] - best[h]);
        [[unroll]] for (uint c = 0; c < kC; ++c) {
          uint at = lane + gl_SubgroupSize * c;
          if (4 * at < kHeadDim) joined[h * (kHeadDim / 4) + at] += share * value[h * kC + c];
        }
      }
    }
    barrier();
  }
  const uint unit = kHeadDim + 2;
  uint64_t part = parts + ((uint64_t(row) * gl_NumWorkGroups.y + gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x) *
                              kQ * unit * 4;
  [[unroll]] for (uint h = 0; h < kQ; ++h) {
    if (h >= here) continue;
    for (uint i = thread; i < kHeadDim; i += 256) {
      float v = joined[h * (kHeadDim / 4) + i / 4][i % 4];
      if (gl_NumWorkGroups.x == 1) {
        Floats(out_row).at[h * kHeadDim + i] = v / total[h] * gate_of(q, row, heads, first_head + h, i);
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
