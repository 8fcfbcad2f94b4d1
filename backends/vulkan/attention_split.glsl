// SPDX-License-Identifier: Apache-2.0
// The products of one split of one row, softmax(q k^T) v of kQ query heads that share a KV head, for
// attention_step.comp.
//
// Subgroups share the positions, kU at a time; a lane holds kC parts of four elements of every head. Keys and values
// are requested before the queries are known. The including shader defines `ready` and `newest`: the queries, and where
// the newest key and value are.
#include "attention_subgroups.glsl"

const uint kFours = kHeadDim / 4, kSlabs = 4;

shared vec4 ready[(kQ + 2) * kFours];        // the queries, the newest key and value
shared vec4 slabs[kSlabs * kQ * kFours];     // unnormalised values, of some subgroups each
uint newest;                                 // position

uvec4 raw_four(uint64_t a, uint c) { return kBf16 ? uvec4(Word2s(a).at[c], 0, 0) : Word4s(a).at[c]; }
vec4 four_of(uvec4 w) {
  return uintBitsToFloat(kBf16 ? uvec4(w.x << 16, w.x & 0xffff0000u, w.y << 16, w.y & 0xffff0000u) : w);
}

uvec4 keys[kU * kC], held_values[kU * kC];  // as stored in memory

// The fours of a head that this lane holds.
uint four_at(uint c) { return gl_SubgroupInvocationID + gl_SubgroupSize * c; }

// The pages of kU positions; from `end` on, the last position's again. Unfilled entries of the page table are read but
// ignored.
uint page_of[kU], slot_of[kU];
void find_pages(uint64_t step, uint seq, uint position, uint end) {
  Step s = Step(step);
  [[unroll]] for (uint u = 0; u < kU; ++u) {
    uint at = min(position + u, end - 1), page = min(at / s.page_size, s.block_table_stride - 1);
    slot_of[u] = at % s.page_size;
    page_of[u] = step_word(step, s.block_table_at, seq * s.block_table_stride + page);
  }
}
void ask(uint64_t pages, uint page_size, uint kv_heads, uint kv) {
  uint64_t to_value = uint64_t(page_size) * kHeadDim * kBytes;
  [[unroll]] for (uint u = 0; u < kU; ++u) {
    uint64_t first = (uint64_t(page_of[u]) * kv_heads + kv) * 2 * page_size + slot_of[u];
    uint64_t key = pages + first * kHeadDim * kBytes;
    [[unroll]] for (uint c = 0; c < kC; ++c) {
      keys[u * kC + c] = raw_four(key, min(four_at(c), kFours - 1));
      held_values[u * kC + c] = raw_four(key + to_value, min(four_at(c), kFours - 1));
    }
  }
}

void begin_products(uint here, float scale) {
  [[unroll]] for (uint h = 0; h < kQ; ++h) {
    top[h] = kNone;
    sum[h] = 0;
    [[unroll]] for (uint c = 0; c < kC; ++c) {
      value[h * kC + c] = vec4(0);
      query[h * kC + c] = four_at(c) < kFours && h < here ? ready[h * kFours + four_at(c)] * scale : vec4(0);
    }
  }
}

// The held words of a position's key (place 0) or value (1).
vec4 held_four(uvec4 raw, uint place, uint c, uint position) {
  if (position != newest) return four_of(raw);
  return ready[(kQ + place) * kFours + min(four_at(c), kFours - 1)];
}

// Adds the requested positions, `position` .. min(position + kU, end) - 1.
void add_products(uint position, uint end) {
  float score[kU * kQ];
  [[unroll]] for (uint u = 0; u < kU; ++u) {
    [[unroll]] for (uint h = 0; h < kQ; ++h) score[u * kQ + h] = 0;
    [[unroll]] for (uint c = 0; c < kC; ++c) {
      vec4 x = held_four(keys[u * kC + c], 0, c, min(position + u, end - 1));
      [[unroll]] for (uint h = 0; h < kQ; ++h) {
        [[unroll]] for (uint j = 0; j < 4; ++j) score[u * kQ + h] = fma(query[h * kC + c][j], x[j], score[u * kQ + h]);
      }
    }
    [[unroll]] for (uint h = 0; h < kQ; ++h) {
      float dotted = subgroupAdd(score[u * kQ + h]);
      score[u * kQ + h] = position + u < end ? dotted : kNone;
    }
  }
  [[unroll]] for (uint h = 0; h < kQ; ++h) {
    float most = top[h];
    [[unroll]] for (uint u = 0; u < kU; ++u) most = max(most, score[u * kQ + h]);
    float keep = exp(top[h] - most);
    top[h] = most;
    sum[h] *= keep;
    [[unroll]] for (uint c = 0; c < kC; ++c) value[h * kC + c] *= keep;
    [[unroll]] for (uint u = 0; u < kU; ++u) {
      score[u * kQ + h] = position + u < end ? exp(score[u * kQ + h] - most) : 0.0;
      sum[h] += score[u * kQ + h];
    }
  }
  [[unroll]] for (uint u = 0; u < kU; ++u) {
    [[unroll]] for (uint c = 0; c < kC; ++c) {
      vec4 x = held_four(held_values[u * kC + c], 1, c, min(position + u, end - 1));
      [[unroll]] for (uint h = 0; h < kQ; ++h) value[h * kC + c] = fma(vec4(score[u * kQ + h]), x, value[h * kC + c]);
    }
  }
}

// Writes the subgroups' results to slabs, best and total.
void join_subgroups() {
  weigh_subgroups();
  uint slab = gl_SubgroupID % kSlabs * kQ * kFours;
  for (uint first = 0; first < gl_NumSubgroups; first += kSlabs) {
    if (gl_SubgroupID - gl_SubgroupID % kSlabs == first) {
      [[unroll]] for (uint h = 0; h < kQ; ++h) {
        float share = exp(top[h] - best[h]);
        [[unroll]] for (uint c = 0; c < kC; ++c) {
          uint at = slab + h * kFours + four_at(c);
          if (four_at(c) < kFours) slabs[at] = (first == 0 ? vec4(0) : slabs[at]) + share * value[h * kC + c];
        }
      }
    }
    barrier();
  }
}
vec4 joined(uint i) {
  vec4 x = slabs[i];
  for (uint s = 1; s < min(kSlabs, gl_NumSubgroups); ++s) x += slabs[s * kQ * kFours + i];
  return x;
}
