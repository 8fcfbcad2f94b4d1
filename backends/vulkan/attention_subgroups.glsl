// SPDX-License-Identifier: Apache-2.0
// Results of a workgroup's subgroups for kQ heads, for attention_products.glsl and attention_split.glsl.
layout(constant_id = 3) const uint kQ = 4;
layout(constant_id = 4) const uint kC = 2;  // parts of four elements of a head, of a lane
layout(constant_id = 5) const uint kU = 4;  // positions at a time

shared float tops[32 * kQ], sums[32 * kQ];  // of each subgroup

const float kNone = -3.0e38;

vec4 query[kQ * kC], value[kQ * kC];
float top[kQ], sum[kQ];
float best[kQ], total[kQ];  // of all subgroups: the largest score, and the sum of weights

// Computes best and total from every subgroup's top and sum. Earlier writes to shared memory are visible afterwards.
void weigh_subgroups() {
  if (gl_SubgroupInvocationID == 0) {
    [[unroll]] for (uint h = 0; h < kQ; ++h) {
      tops[gl_SubgroupID * kQ + h] = top[h];
      sums[gl_SubgroupID * kQ + h] = sum[h];
    }
  }
  barrier();
  [[unroll]] for (uint h = 0; h < kQ; ++h) {
    best[h] = kNone;
    total[h] = 0;
    for (uint g = 0; g < gl_NumSubgroups; ++g) best[h] = max(best[h], tops[g * kQ + h]);
    for (uint g = 0; g < gl_NumSubgroups; ++g) total[h] = fma(sums[g * kQ + h], exp(tops[g * kQ + h] - best[h]), total[h]);
  }
}
