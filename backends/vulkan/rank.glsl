// SPDX-License-Identifier: Apache-2.0
// The router's choice by a whole workgroup: experts with fewer than kTopK larger ones among 32, then among those. The
// including shader defines kExperts, kTopK, kThreads and Kept.
#ifndef SWITCHYARD_RANK_GLSL_
#define SWITCHYARD_RANK_GLSL_

const uint kChosenOfBlock = kTopK < 32 ? kTopK : 32, kExpertBlocks = (kExperts + 31) / 32;
const uint kCandidates = kExpertBlocks * kChosenOfBlock;
shared uvec4 expert_keys[kExpertBlocks * 8];  // 0: no expert
shared uvec4 candidate_keys[(kCandidates + 3) / 4];
shared uint candidate_ids[kCandidates];
shared uint chosen_id[kTopK];
shared float chosen_logit[kTopK], chosen_weight[kTopK];

// Larger floats have larger keys; none is 0.
uint float_key(float x) {
  uint bits = floatBitsToUint(x);
  return max((bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u, 1u);
}
float key_float(uint key) { return uintBitsToFloat((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key); }

// How many of the four at `first` precede the one at `own`: larger keys, and equal keys with lower ids.
uint count_before(uvec4 keys, uint first, uint key, uint own) {
  uint n = 0;
  [[unroll]] for (uint j = 0; j < 4; ++j) n += keys[j] > (first + j < own ? key - 1 : key) ? 1 : 0;
  return n;
}

// The kTopK largest of the logits, of equal ones the lowest id, into chosen_id, and exp(logit) over their sum into
// chosen_weight. All threads must call this; afterwards all see the result.
void rank_experts(uint64_t logits) {
  for (uint e = gl_LocalInvocationIndex; e < kExpertBlocks * 32; e += kThreads) {
    expert_keys[e / 4][e % 4] = e < kExperts ? float_key(Kept(logits).at[e]) : 0;
  }
  for (uint c = gl_LocalInvocationIndex; c < (kCandidates + 3) / 4 * 4; c += kThreads) candidate_keys[c / 4][c % 4] = 0;
  barrier();
  for (uint e = gl_LocalInvocationIndex; e < kExperts; e += kThreads) {
    uint block = e / 32, key = expert_keys[e / 4][e % 4], n = 0;
    [[unroll]] for (uint i = 0; i < 8; ++i) n += count_before(expert_keys[block * 8 + i], 4 * i, key, e % 32);
    uint at = block * kChosenOfBlock + n;
    if (n < kChosenOfBlock) {
      candidate_keys[at / 4][at % 4] = key;
      candidate_ids[at] = e;
    }
  }
  barrier();
  for (uint c = gl_LocalInvocationIndex; c < kCandidates; c += kThreads) {
    uint key = candidate_keys[c / 4][c % 4], n = 0;
    for (uint i = 0; i < (kCandidates + 3) / 4; ++i) n += count_before(candidate_keys[i], 4 * i, key, c);
    if (key != 0 && n < kTopK) {
      chosen_id[n] = candidate_ids[c];
      chosen_logit[n] = key_float(key);
    }
  }
  barrier();
  if (gl_LocalInvocationIndex < kTopK) {
    float sum = 0;
    for (uint k = 0; k < kTopK; ++k) sum += exp(chosen_logit[k] - chosen_logit[0]);
    chosen_weight[gl_LocalInvocationIndex] = exp(chosen_logit[gl_LocalInvocationIndex] - chosen_logit[0]) / sum;
  }
  barrier();
}

#endif
