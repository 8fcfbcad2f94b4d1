// SPDX-License-Identifier: Apache-2.0
// The products of one split of a row: softmax(q k^T) v of kQ query heads that share a KV head. Subgroups share the
// positions; a lane holds kC parts of four elements of every head.
//
// The including shader defines KEY_FOUR(key, c, position) and VALUE_FOUR(value, c, position): elements 4 c .. + 3;
// `key` is the address in its page.
#include "attention_subgroups.glsl"

shared vec4 joined[kQ * (kHeadDim / 4)];  // the unnormalised values of all subgroups

// Scores of kU positions and kQ heads: first each lane's part of them, then their weights. `keep`: the factor of the
// weights of earlier positions.
const uint kScores = kU * kQ;
float score[kScores], keep[kQ];

// If there are enough lanes, each lane sums up and weights one score, which takes a fifth of the shuffles and
// exponentials: lane l has number l / shared_by, and its head is that modulo kQ.
const bool kSpreads = (kScores & (kScores - 1)) == 0;
bool spreads() { return kSpreads && gl_SubgroupSize >= kScores; }
uint shared_by() { return gl_SubgroupSize / kScores; }
float own_top, own_sum;

void weigh_own(uint position, uint end) {
  uint lane = gl_SubgroupInvocationID, number = lane / shared_by();
  [[unroll]] for (uint stage = 0; stage < 7; ++stage) {  // each sums up half of the scores in half of the lanes
    const uint scores = kScores >> (stage + 1);
    uint bit = gl_SubgroupSize >> (stage + 1);
    bool upper = (lane & bit) != 0;
    [[unroll]] for (uint i = 0; i < scores; ++i) {
      float mine = upper ? score[scores + i] : score[i], other = upper ? score[i] : score[scores + i];
      score[i] = mine + subgroupShuffleXor(other, bit);
    }
  }
  float s = score[0];
  for (uint bit = shared_by() / 2; bit > 0; bit /= 2) s += subgroupShuffleXor(s, bit);
  bool there = position + number / kQ < end;
  float most = there ? s : kNone;
  for (uint bit = gl_SubgroupSize / 2; bit >= kQ * shared_by(); bit /= 2) most = max(most, subgroupShuffleXor(most, bit));
  most = max(most, own_top);
  float kept = exp(own_top - most), weight = there ? exp(s - most) : 0.0;
  own_top = most;
  own_sum = fma(own_sum, kept, weight);
  [[unroll]] for (uint i = 0; i < kScores; ++i) score[i] = subgroupShuffle(weight, i * shared_by());
  [[unroll]] for (uint h = 0; h < kQ; ++h) keep[h] = subgroupShuffle(kept, h * shared_by());
}
void weigh_all(uint position, uint end) {
  [[unroll]] for (uint i = 0; i < kScores; ++i) score[i] = subgroupAdd(score[i]);
  [[unroll]] for (uint h = 0; h < kQ; ++h) {
    float most = top[h];
    [[unroll]] for (uint u = 0; u < kU; ++u) most = max(most, position + u < end ? score[u * kQ + h] : kNone);
    keep[h] = exp(top[h] - most);
    top[h] = most;
    sum[h] *= keep[h];
    [[unroll]] for (uint u = 0; u < kU; ++u) {
      score[u * kQ + h] = position + u < end ? exp(score[u * kQ + h] - most) : 0.0;
      sum[h] += score[u * kQ + h];
    }
  }
}

// Positions `position` .. end - 1 of a sequence, for this subgroup. `query` is set.
void attend(uint64_t pages, uint64_t step, uint seq, uint kv_heads, uint kv, uint position, uint end) {
  uint lane = gl_SubgroupInvocationID;
  own_top = kNone;
  own_sum = 0;
  [[unroll]] for (uint h = 0; h < kQ; ++h) {
    top[h] = kNone;
    sum[h] = 0;
    [[unroll]] for (uint c = 0; c < kC; ++c) value[h * kC + c] = vec4(0);
  }
  uint64_t to_value = uint64_t(Step(step).page_size) * kHeadDim * kBytes;
  for (; position < end; position += kU) {
    uint64_t key[kU];
    vec4 x[kU * kC];
    [[unroll]] for (uint u = 0; u < kU; ++u) {
      key[u] = key_at(pages, step, seq, kv_heads, kv, min(position + u, end - 1));
      [[unroll]] for (uint c = 0; c < kC; ++c) {
        uint at = lane + gl_SubgroupSize * c;
        x[u * kC + c] = 4 * at < kHeadDim ? KEY_FOUR(key[u], at, min(position + u, end - 1)) : vec4(0);
      }
    }
    [[unroll]] for (uint u = 0; u < kU; ++u) {
      [[unroll]] for (uint h = 0; h < kQ; ++h) {
        float dotted = 0;
        [[unroll]] for (uint c = 0; c < kC; ++c) {
          [[unroll]] for (uint j = 0; j < 4; ++j) dotted = fma(query[h * kC + c][j], x[u * kC + c][j], dotted);
        }
        score[u * kQ + h] = dotted;
      }
    }
    [[unroll]] for (uint u = 0; u < kU; ++u) {
      [[unroll]] for (uint c = 0; c < kC; ++c) {
        uint at = lane + gl_SubgroupSize * c;
        x[u * kC + c] = 4 * at < kHeadDim ? VALUE_FOUR(key[u] + to_value, at, min(position + u, end - 1)) : vec4(0);
      }
    }
    if (spreads()) {
      weigh_own(position, end);
    } else {
      weigh_all(position, end);
    }
    [[unroll]] for (uint h = 0; h < kQ; ++h) {
      [[unroll]] for (uint c = 0; c < kC; ++c) {
        vec4 v = value[h * kC + c] * keep[h];
        [[unroll]] for (uint u = 0; u < kU; ++u) v = fma(vec4(score[u * kQ + h]), x[u * kC + c], v);
        value[h * kC + c] = v;
      }
    }
  }
  if (!spreads()) return;
  for (uint bit = gl_SubgroupSize / 2; bit >= kQ * shared_by(); bit /= 2) own_sum += subgroupShuffleXor(own_sum, bit);
  [[unroll]] for (uint h = 0; h < kQ; ++h) {
    top[h] = subgroupShuffle(own_top, h * shared_by());
    sum[h] = subgroupShuffle(own_sum, h * shared_by());
  }
}

// Joins the subgroups' results into joined, best and total. The first `busy` subgroups had positions.
void join_subgroups(uint busy) {
  uint lane = gl_SubgroupInvocationID, thread = gl_LocalInvocationIndex;
  for (uint i = thread; i < kQ * (kHeadDim / 4); i += 256) joined[i] = vec4(0);
  weigh_subgroups();
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
}
