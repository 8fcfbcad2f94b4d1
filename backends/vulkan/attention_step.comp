// ATTENTION where every sequence has one row: norms, rotation, the pages and the products in one launch.
//
// gl_WorkGroupID.x: split, so many positions each; .y: KV head and group of kQ heads; .z: row. Every split makes its queries; the
// one with the newest position also makes its key and value, and uses them from shared memory. The last split of a row to
// end joins all: parts [rows, groups, splits, kQ, head_dim] have the unnormalised values, stats [rows, groups, splits, kQ]
// the largest scores and the sums of weights.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "attention.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 6) const uint kTypes = 0;   // of the norms of q and k, 4 bits each
layout(constant_id = 7) const uint kRotary = 0;  // elements that rotate
layout(push_constant, std430) uniform Push {
  uint64_t q, k, v, q_norm, k_norm, pages, turns, y, parts, stats, counters, step;
  uint heads, kv_heads, split_positions;
  float scale, eps, bias;
};
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Counters { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) coherent buffer Parts { vec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) coherent buffer Stats { vec2 at[]; };

const uint kFours = kHeadDim / 4, kMostSplits = 128;
shared vec4 newest_key[kFours], newest_value[kFours];
uint newest;
#define KEY_FOUR(key, c, position) ((position) == newest ? newest_key[c] : load_four(key, c))
#define VALUE_FOUR(value, c, position) ((position) == newest ? newest_value[c] : load_four(value, c))
#include "attention_products.glsl"
#include "attention_rotate.glsl"

shared vec4 ready[kQ * kFours];  // the queries
shared float weights[kQ * kMostSplits];
shared bool last;

float norm_scale(uint64_t from) {
  float squares = 0;
  for (uint i = gl_SubgroupInvocationID; i < kHeadDim; i += gl_SubgroupSize) {
    float x = Floats(from).at[i];
    squares = fma(x, x, squares);
  }
  return inversesqrt(subgroupAdd(squares) / float(kHeadDim) + eps);
}
vec4 as_stored(vec4 x) {
  if (!kBf16) return x;
  return uintBitsToFloat(uvec4(to_bf16(x.x), to_bf16(x.y), to_bf16(x.z), to_bf16(x.w)) << 16);
}

// A head of q into `ready`, by one subgroup.
void make_query(uint row, uint head, uint place, uint position) {
  uint64_t from = q + (uint64_t(row) * heads + head) * (kGated ? 2 : 1) * kHeadDim * 4;
  float factor = norm_scale(from);
  for (uint c = gl_SubgroupInvocationID; c < kFours; c += gl_SubgroupSize) {
    vec4 x;
    [[unroll]] for (uint j = 0; j < 4; ++j) x[j] = element(from, q_norm, kTypes & 15, 4 * c + j, factor, position) * scale;
    ready[place * kFours + c] = x;
  }
}
// The newest key, or value, of a KV head, by one subgroup; into its page, too, if `keep`.
void make_key(uint row, uint kv, uint64_t to, bool keep, uint position) {
  uint64_t from = k + (uint64_t(row) * kv_heads + kv) * kHeadDim * 4;
  float factor = norm_scale(from);
  for (uint c = gl_SubgroupInvocationID; c < kFours; c += gl_SubgroupSize) {
    vec4 x;
    [[unroll]] for (uint j = 0; j < 4; ++j) x[j] = element(from, k_norm, kTypes >> 4, 4 * c + j, factor, position);
    newest_key[c] = as_stored(x);
    if (keep) store_four(to, c, x);
  }
}
void make_value(uint row, uint kv, uint64_t to, bool keep) {
  uint64_t from = v + (uint64_t(row) * kv_heads + kv) * kHeadDim * 4;
  for (uint c = gl_SubgroupInvocationID; c < kFours; c += gl_SubgroupSize) {
    vec4 x = vec4(Floats(from).at[4 * c], Floats(from).at[4 * c + 1], Floats(from).at[4 * c + 2], Floats(from).at[4 * c + 3]);
    newest_value[c] = as_stored(x);
    if (keep) store_four(to, c, x);
  }
}

// y of head `h` of this workgroup, elements 4 c .. + 3.
void put(uint row, uint head, uint c, vec4 x) {
  [[unroll]] for (uint j = 0; j < 4; ++j) {
    Floats(y + (uint64_t(row) * heads + head) * kHeadDim * 4).at[4 * c + j] = x[j] * gate_of(q, row, heads, head, 4 * c + j);
  }
}

// The splits' shares of each head, into `weights`: a subgroup per head.
void weigh_splits(uint64_t first_stat, uint here, uint used) {
  for (uint h = gl_SubgroupID; h < here; h += gl_NumSubgroups) {
    float most = kNone, all = 0;
    for (uint i = gl_SubgroupInvocationID; i < used; i += gl_SubgroupSize) most = max(most, Stats(first_stat).at[i * kQ + h].x);
    most = subgroupMax(most);
    for (uint i = gl_SubgroupInvocationID; i < used; i += gl_SubgroupSize) {
      vec2 stat = Stats(first_stat).at[i * kQ + h];
      weights[h * kMostSplits + i] = exp(stat.x - most);
      all = fma(stat.y, exp(stat.x - most), all);
    }
    all = subgroupAdd(all);
    for (uint i = gl_SubgroupInvocationID; i < used; i += gl_SubgroupSize) weights[h * kMostSplits + i] /= all;
  }
}

void main() {
  uint row = gl_WorkGroupID.z, thread = gl_LocalInvocationIndex, lane = gl_SubgroupInvocationID;
  Step s = Step(step);
  if (row >= s.rows) return;
  uint per_kv = heads / kv_heads, groups = (per_kv + kQ - 1) / kQ;
  uint kv = gl_WorkGroupID.y / groups, first = gl_WorkGroupID.y % groups * kQ;  // among the heads of kv
  uint here = min(kQ, per_kv - first), first_head = kv * per_kv + first;
  uint seq = step_word(step, s.row_seq_at, row);
  newest = step_word(step, s.row_position_at, row);
  uint context = newest + 1, begin = gl_WorkGroupID.x * split_positions;
  if (step_word(step, s.seq_active_at, seq) == 0) {
    if (begin == 0) {
      for (uint i = thread; i < here * kHeadDim; i += 256) {
        Floats(y + (uint64_t(row) * heads + first_head) * kHeadDim * 4).at[i] = 0;
      }
    }
    return;
  }
  if (begin >= context) return;
  uint count = min(context - begin, split_positions), each = (count + gl_NumSubgroups - 1) / gl_NumSubgroups;
  bool has_newest = begin + count == context;
  for (uint task = gl_SubgroupID; task < here + (has_newest ? 2 : 0); task += gl_NumSubgroups) {
    uint64_t to = key_at(pages, step, seq, kv_heads, kv, newest);
    if (task < here) make_query(row, first_head + task, task, newest);
    if (task == here) make_key(row, kv, to, first == 0, newest);
    if (task == here + 1) make_value(row, kv, to + uint64_t(s.page_size) * kHeadDim * kBytes, first == 0);
  }
  barrier();
  [[unroll]] for (uint h = 0; h < kQ; ++h) {
    [[unroll]] for (uint c = 0; c < kC; ++c) {
      uint at = lane + gl_SubgroupSize * c;
      query[h * kC + c] = at < kFours && h < here ? ready[h * kFours + at] : vec4(0);
    }
  }
  uint position = begin + gl_SubgroupID * each;
  attend(pages, step, seq, kv_heads, kv, position, min(position + each, begin + count));
  join_subgroups((count + each - 1) / each);
  uint used = (context + split_positions - 1) / split_positions, mine = row * gl_NumWorkGroups.y + gl_WorkGroupID.y;
  if (used == 1) {
    for (uint i = thread; i < here * kFours; i += 256) {
      float all = 0;
      [[unroll]] for (uint h = 0; h < kQ; ++h) all = h == i / kFours ? total[h] : all;
      put(row, first_head + i / kFours, i % kFours, joined[i] / all);
    }
    return;
  }
  uint64_t first_stat = stats + uint64_t(mine) * gl_NumWorkGroups.x * kQ * 8;
  uint64_t first_part = parts + uint64_t(mine) * gl_NumWorkGroups.x * kQ * kHeadDim * 4;
  for (uint i = thread; i < here * kFours; i += 256) Parts(first_part).at[gl_WorkGroupID.x * kQ * kFours + i] = joined[i];
  [[unroll]] for (uint h = 0; h < kQ; ++h) {
    if (thread == h && h < here) Stats(first_stat).at[gl_WorkGroupID.x * kQ + h] = vec2(best[h], total[h]);
  }
  memoryBarrierBuffer();
  barrier();
  if (thread == 0) {
    last = atomicAdd(Counters(counters).at[mine], 1u) + 1 == used;
    if (last) Counters(counters).at[mine] = 0;
    memoryBarrierBuffer();
  }
  barrier();
  if (!last) return;
  weigh_splits(first_stat, here, used);
  barrier();
  for (uint i = thread; i < here * kFours; i += 256) {
    vec4 x = vec4(0);
    for (uint n = 0; n < used; ++n) {
      x = fma(vec4(weights[i / kFours * kMostSplits + n]), Parts(first_part).at[n * kQ * kFours + i], x);
    }
    put(row, first_head + i / kFours, i % kFours, x);
  }
}
