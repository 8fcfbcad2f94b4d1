// SPDX-License-Identifier: Apache-2.0
// ATTENTION where every sequence has one row: norms, rotation, the pages and the products in one launch.
//
// gl_WorkGroupID.x: KV head and group of kQ heads; .y: split, a fixed number of positions; .z: row. Splits beyond the
// context come last, so that those with positions get processors of their own. Every split computes its queries. The
// split with the newest position also computes its key and value, and uses them from shared memory. The last split of a
// row to finish joins all: parts [rows, groups, splits, kQ, head_dim] have the unnormalised values, stats [rows,
// groups, splits, kQ] the largest scores and the sums of weights. Splits that a window leaves out do nothing.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "attention.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 6) const uint kTypes = 0;   // of the norms of q and k, 4 bits each; 0: there are none
layout(constant_id = 7) const uint kRotary = 0;  // elements that rotate
layout(constant_id = 8) const bool kTable = false;
layout(constant_id = 9) const float kRopeScale = 1.0;
layout(constant_id = 10) const uint kWindow = 0;    // as in attention.comp
layout(constant_id = 11) const uint kSinkType = 0;
layout(push_constant, std430) uniform Push {
  uint64_t q, k, v, q_norm, k_norm, pages, turns, y, parts, stats, counters, step, sinks;
  uint heads, kv_heads, split_positions;
  float scale, eps, bias;
};
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Counters { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) coherent buffer Parts { vec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) coherent buffer Stats { vec2 at[]; };

const uint kMostSplits = 128, kJoin = 16;  // parts that a thread requests at once
#include "attention_split.glsl"
#include "attention_rotate.glsl"

shared float weights[kQ * kMostSplits];
shared bool last;

vec4 as_stored(vec4 x) {
  if (!kBf16) return x;
  return uintBitsToFloat(uvec4(to_bf16(x.x), to_bf16(x.y), to_bf16(x.z), to_bf16(x.w)) << 16);
}

// The weight of a head's sink beside scores of which `largest` is the largest.
float sink_weight(uint head, float largest) {
  return kSinkType == 0 ? 0.0 : exp(plain_at(sinks, kSinkType, head) - largest);
}

// One subgroup: a head of q or k after norm and rotation, at ready[first].
void make_head(uint64_t from, uint64_t norm, uint type, uint first) {
  vec4 x[kC], w[kC];
  float squares = 0;
  [[unroll]] for (uint c = 0; c < kC; ++c) {
    x[c] = four_at(c) < kFours ? Float4s(from).at[four_at(c)] : vec4(0);
    if (type != 0) w[c] = plain_four(norm, type, min(four_at(c), kFours - 1));
  }
  const uint half_rotary = kRotary / 2;
  uint lane = gl_SubgroupInvocationID;
  uint64_t turn = lane < half_rotary ? turn_of(lane) : 0;
  [[unroll]] for (uint c = 0; c < kC; ++c) squares += dot(x[c], x[c]);
  float factor = type == 0 ? 1.0 : inversesqrt(subgroupAdd(squares) / float(kHeadDim) + eps);
  [[unroll]] for (uint c = 0; c < kC; ++c) {
    if (four_at(c) < kFours) ready[first + four_at(c)] = type == 0 ? x[c] : x[c] * factor * (bias + w[c]);
  }
  subgroupMemoryBarrierShared();
  subgroupBarrier();
  for (uint pair = lane; pair < half_rotary; pair += gl_SubgroupSize) {
    vec2 sc = sine_cosine((pair == lane ? turn : turn_of(pair)) * newest);
    if (kRopeScale != 1.0) sc *= kRopeScale;
    uint other = pair + half_rotary;
    float a = ready[first + pair / 4][pair % 4], b = ready[first + other / 4][other % 4];
    ready[first + pair / 4][pair % 4] = fma(a, sc.y, -b * sc.x);
    ready[first + other / 4][other % 4] = fma(b, sc.y, a * sc.x);
  }
  subgroupMemoryBarrierShared();
  subgroupBarrier();
}
// One subgroup each: the newest key and value of a KV head in their stored form; also written to the page if `keep`.
void make_key(uint64_t from, uint64_t to, bool keep) {
  const uint first = kQ * kFours;
  make_head(from, k_norm, kTypes >> 4, first);
  [[unroll]] for (uint c = 0; c < kC; ++c) {
    if (four_at(c) >= kFours) continue;
    vec4 x = ready[first + four_at(c)];
    ready[first + four_at(c)] = as_stored(x);
    if (keep) store_four(to, four_at(c), x);
  }
}
void make_value(uint64_t from, uint64_t to, bool keep) {
  [[unroll]] for (uint c = 0; c < kC; ++c) {
    if (four_at(c) >= kFours) continue;
    vec4 x = Float4s(from).at[four_at(c)];
    ready[(kQ + 1) * kFours + four_at(c)] = as_stored(x);
    if (keep) store_four(to, four_at(c), x);
  }
}
// One subgroup each: the queries of this workgroup, and the newest key and value if its split has them.
void make_heads(uint row, uint kv, uint first, uint here, bool has_newest) {
  uint per_kv = heads / kv_heads;
  uint64_t row_kv = (uint64_t(row) * kv_heads + kv) * kHeadDim * 4;
  for (uint task = gl_SubgroupID; task < here + (has_newest ? 2 : 0); task += gl_NumSubgroups) {
    if (task < here) {
      uint64_t head = uint64_t(row) * heads + kv * per_kv + first + task;
      make_head(q + head * (kGated ? 2 : 1) * kHeadDim * 4, q_norm, kTypes & 15, task * kFours);
      continue;
    }
    uint64_t to = key_at(pages, step, step_word(step, Step(step).row_seq_at, row), kv_heads, kv, newest);
    if (task == here) make_key(k + row_kv, to, first == 0);
    if (task == here + 1) make_value(v + row_kv, to + uint64_t(Step(step).page_size) * kHeadDim * kBytes, first == 0);
  }
}

// The factors of a head's y, elements 4 c .. + 3, and y.
vec4 gate_four(uint row, uint head, uint c) {
  if (!kGated) return vec4(1);
  vec4 x = Float4s(q + (uint64_t(row) * heads + head) * 2 * kHeadDim * 4).at[kFours + c];
  return vec4(sigmoid(x.x), sigmoid(x.y), sigmoid(x.z), sigmoid(x.w));
}
void put(uint row, uint head, uint c, vec4 x) {
  Float4s(y + (uint64_t(row) * heads + head) * kHeadDim * 4).at[c] = x;
}

// One subgroup per head: the splits' shares, into `weights`.
void weigh_splits(uint64_t first_stat, uint here, uint used, uint first_head) {
  for (uint h = gl_SubgroupID; h < here; h += gl_NumSubgroups) {
    float most = kNone, all = 0;
    for (uint i = gl_SubgroupInvocationID; i < used; i += gl_SubgroupSize) {  // read once
      vec2 stat = Stats(first_stat).at[i * kQ + h];
      float larger = max(most, stat.x);
      all = fma(stat.y, exp(stat.x - larger), all * exp(most - larger));
      most = larger;
      weights[h * kMostSplits + i] = stat.x;
    }
    float largest = subgroupMax(most);
    all = subgroupAdd(all * exp(most - largest)) + sink_weight(first_head + h, largest);
    for (uint i = gl_SubgroupInvocationID; i < used; i += gl_SubgroupSize) {
      weights[h * kMostSplits + i] = exp(weights[h * kMostSplits + i] - largest) / all;
    }
  }
}

// The sum of the splits' values, weighted by their shares, over all of this workgroup's parts.
void join_splits(uint64_t first_stat, uint64_t first_part, uint here, uint used, uint row, uint first_head) {
  bool weighed = false;
  for (uint i = gl_LocalInvocationIndex; i - gl_LocalInvocationIndex < here * kFours; i += 256) {
    uint item = min(i, here * kFours - 1);
    vec4 x = vec4(0), gate = gate_four(row, first_head + item / kFours, item % kFours);
    for (uint n0 = 0; n0 < used; n0 += kJoin) {
      vec4 part[kJoin];
      [[unroll]] for (uint n = 0; n < kJoin; ++n) part[n] = Parts(first_part).at[min(n0 + n, used - 1) * kQ * kFours + item];
      if (!weighed) {  // parts are on their way meanwhile
        weigh_splits(first_stat, here, used, first_head);
        barrier();
        weighed = true;
      }
      [[unroll]] for (uint n = 0; n < kJoin; ++n) {
        x = fma(vec4(n0 + n < used ? weights[item / kFours * kMostSplits + n0 + n] : 0.0), part[n], x);
      }
    }
    if (i == item) put(row, first_head + item / kFours, item % kFours, x * gate);
  }
}

// Writes the part of the split, `nth` of those that are used; returns whether it is the last of them.
bool leave(uint64_t first_stat, uint64_t first_part, uint here, uint counter, uint nth, uint used) {
  for (uint i = gl_LocalInvocationIndex; i < here * kFours; i += 256) {
    Parts(first_part).at[nth * kQ * kFours + i] = joined(i);
  }
  [[unroll]] for (uint h = 0; h < kQ; ++h) {
    if (gl_LocalInvocationIndex == h && h < here) Stats(first_stat).at[nth * kQ + h] = vec2(best[h], total[h]);
  }
  memoryBarrierBuffer();
  barrier();
  if (gl_LocalInvocationIndex == 0) {
    last = atomicAdd(Counters(counters).at[counter], 1u) + 1 == used;
    if (last) Counters(counters).at[counter] = 0;
    memoryBarrierBuffer();
  }
  barrier();
  return last;
}

// Writes y from the subgroups' results: called by the only split, or by the last of `used`.
void finish(uint row, uint first_head, uint here, uint nth, uint used) {
  uint mine = row * gl_NumWorkGroups.x + gl_WorkGroupID.x;
  if (used == 1) {
    for (uint i = gl_LocalInvocationIndex; i < here * kFours; i += 256) {
      float all = 0;
      [[unroll]] for (uint h = 0; h < kQ; ++h) {
        all = h == i / kFours ? total[h] + sink_weight(first_head + h, best[h]) : all;
      }
      put(row, first_head + i / kFours, i % kFours, joined(i) / all * gate_four(row, first_head + i / kFours, i % kFours));
    }
    return;
  }
  uint64_t first_stat = stats + uint64_t(mine) * gl_NumWorkGroups.y * kQ * 8;
  uint64_t first_part = parts + uint64_t(mine) * gl_NumWorkGroups.y * kQ * kHeadDim * 4;
  if (leave(first_stat, first_part, here, mine, nth, used)) {
    join_splits(first_stat, first_part, here, used, row, first_head);
  }
}

void main() {
  uint row = gl_WorkGroupID.z, thread = gl_LocalInvocationIndex;
  Step s = Step(step);
  if (row >= s.rows) return;
  uint per_kv = heads / kv_heads, groups = (per_kv + kQ - 1) / kQ;
  uint kv = gl_WorkGroupID.x / groups, first = gl_WorkGroupID.x % groups * kQ;  // among the heads of kv
  uint here = min(kQ, per_kv - first), first_head = kv * per_kv + first;
  uint seq = step_word(step, s.row_seq_at, row);
  newest = step_word(step, s.row_position_at, row);
  uint context = newest + 1, begin = gl_WorkGroupID.y * split_positions;
  uint each = (split_positions + gl_NumSubgroups - 1) / gl_NumSubgroups;
  uint position = begin + gl_SubgroupID * each, end = min(position + each, min(begin + split_positions, context));
  uint unused = 0;  // splits before the window
  if (kWindow != 0) {
    const uint from = first_read(context, kWindow);
    unused = from / split_positions;
    position = max(position, from);
    if (end <= from) position = end = from + 1;  // nothing to add, and nothing older is read
  }
  find_pages(step, seq, position, end);
  if (step_word(step, s.seq_active_at, seq) == 0) {
    if (begin == 0) {
      for (uint i = thread; i < here * kFours; i += 256) put(row, first_head + i / kFours, i % kFours, vec4(0));
    }
    return;
  }
  if (begin >= context || gl_WorkGroupID.y < unused) return;
  ask(pages, s.page_size, kv_heads, kv);
  make_heads(row, kv, first, here, begin + split_positions >= context);
  barrier();
  begin_products(here, scale);
  for (;;) {
    add_products(position, end);
    position += kU;
    if (position >= end) break;
    find_pages(step, seq, position, end);
    ask(pages, s.page_size, kv_heads, kv);
  }
  join_subgroups();
  finish(row, first_head, here, gl_WorkGroupID.y - unused,
         (context + split_positions - 1) / split_positions - unused);
}
