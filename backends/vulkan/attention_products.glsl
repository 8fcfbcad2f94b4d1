// The products of one split of a row: softmax(q k^T) v of kQ query heads that share a KV head. Subgroups share the positions;
// a lane holds kC parts of four elements of every head.
//
// The includer gives KEY_FOUR(key, c, position) and VALUE_FOUR(value, c, position): elements 4 c .. + 3, `key` being the
// address in its page.
layout(constant_id = 3) const uint kQ = 4;
layout(constant_id = 4) const uint kC = 2;
layout(constant_id = 5) const uint kU = 4;  // positions at a time

shared float tops[32 * kQ], sums[32 * kQ];  // of each subgroup
shared vec4 joined[kQ * (kHeadDim / 4)];    // the unnormalised values of all subgroups

const float kNone = -3.0e38;

vec4 query[kQ * kC], value[kQ * kC];
float top[kQ], sum[kQ];
float best[kQ], total[kQ];  // of all subgroups: the largest score, and the sum of weights

// Positions `position` .. end - 1 of a sequence, for this subgroup. `query` is set.
void attend(uint64_t pages, uint64_t step, uint seq, uint kv_heads, uint kv, uint position, uint end) {
  uint lane = gl_SubgroupInvocationID;
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
        x[u * kC + c] = 4 * at < kHeadDim ? VALUE_FOUR(key[u] + to_value, at, min(position + u, end - 1)) : vec4(0);
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
}

// What the subgroups found, into joined, best and total. The first `busy` of them had positions.
void join_subgroups(uint busy) {
  uint lane = gl_SubgroupInvocationID, thread = gl_LocalInvocationIndex;
  if (lane == 0) {
    [[unroll]] for (uint h = 0; h < kQ; ++h) {
      tops[gl_SubgroupID * kQ + h] = top[h];
      sums[gl_SubgroupID * kQ + h] = sum[h];
    }
  }
  for (uint i = thread; i < kQ * (kHeadDim / 4); i += 256) joined[i] = vec4(0);
  barrier();
  [[unroll]] for (uint h = 0; h < kQ; ++h) {
    best[h] = kNone;
    total[h] = 0;
    for (uint g = 0; g < gl_NumSubgroups; ++g) best[h] = max(best[h], tops[g * kQ + h]);
    for (uint g = 0; g < gl_NumSubgroups; ++g) total[h] = fma(sums[g * kQ + h], exp(tops[g * kQ + h] - best[h]), total[h]);
  }
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
