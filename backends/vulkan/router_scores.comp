// SPDX-License-Identifier: Apache-2.0
// ROUTER_TOPK, and the choice of MOE, where it is not that of the largest logits with weights that sum to 1
// (router.comp): other scores, corrections, groups of experts. ids and weights [rows, top_k] from logits
// [rows, experts]. A workgroup per row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
const uint kMostExperts = 4096, kMostGroups = 1024;
#include "router_keys.glsl"
layout(local_size_x_id = 0) in;  // a subgroup
layout(constant_id = 1) const uint kRouter = 0;          // swy_router
layout(constant_id = 2) const bool kNormalize = true;
layout(constant_id = 3) const uint kCorrectionType = 0;  // 0: no correction
layout(push_constant, std430) uniform Push {
  uint64_t logits, ids, weights, step, correction;
  uint experts, top_k, domain, groups, top_groups;
  float routed_scale;
};
const uint SOFTMAX_TOPK = 0, TOPK_SOFTMAX = 1, SIGMOID_TOPK = 2;

shared uint choices[kMostExperts];  // bits of floats, then keys
shared float ranks[kMostGroups];
shared uint chosen_id[32];
shared float chosen[32];  // scores without their common factor
float top = 0, total = 1;  // of a softmax over all experts: the largest logit, and the sum

void meet() {
  subgroupMemoryBarrierShared();
  subgroupBarrier();
}

float raw_score(float logit) { return kRouter == SIGMOID_TOPK ? sigmoid(logit) : exp(logit - top); }

// Logits have the order of their scores, and do not become equal by rounding.
void make_choices(uint64_t row_logits) {
  uint lane = gl_SubgroupInvocationID;
  bool by_logits = kCorrectionType == 0 && groups == 1 || kRouter == TOPK_SOFTMAX;
  if (kRouter == SOFTMAX_TOPK) {
    float most = Floats(row_logits).at[0], sum = 0;
    for (uint e = lane; e < experts; e += gl_SubgroupSize) most = max(most, Floats(row_logits).at[e]);
    top = subgroupMax(most);
    for (uint e = lane; e < experts; e += gl_SubgroupSize) sum += exp(Floats(row_logits).at[e] - top);
    total = subgroupAdd(sum);
  }
  for (uint e = lane; e < experts; e += gl_SubgroupSize) {
    float logit = Floats(row_logits).at[e], choice = by_logits ? logit : raw_score(logit) / total;
    if (kCorrectionType != 0) choice += plain_at(correction, kCorrectionType, e);
    choices[e] = floatBitsToUint(choice);
  }
  meet();
}

// The sum of the two largest choices of a group; of one, itself.
float rank_of(uint group, uint size) {
  float first = uintBitsToFloat(choices[group * size]), second = uintBitsToFloat(0xff800000u);
  for (uint i = 1; i < size; ++i) {
    float c = uintBitsToFloat(choices[group * size + i]);
    second = max(second, min(first, c));
    first = max(first, c);
  }
  return size == 1 ? first : first + second;
}

// Choices become keys; of all but the top_groups highest groups they are 0.
void make_keys() {
  uint lane = gl_SubgroupInvocationID, size = experts / groups;
  if (groups > 1) {
    for (uint g = lane; g < groups; g += gl_SubgroupSize) ranks[g] = rank_of(g, size);
    meet();
  }
  for (uint g = 0; g < groups; ++g) {
    uint before = 0;
    if (groups > 1) {
      for (uint h = lane; h < groups; h += gl_SubgroupSize) {
        before += ranks[h] > ranks[g] || ranks[h] == ranks[g] && h < g ? 1 : 0;
      }
      before = subgroupAdd(before);
    }
    for (uint i = lane; i < size; i += gl_SubgroupSize) {
      uint e = g * size + i;
      choices[e] = before < top_groups ? float_key(uintBitsToFloat(choices[e])) : 0;
    }
  }
  meet();
}

void choose(uint64_t row_logits) {
  uint lane = gl_SubgroupInvocationID;
  for (uint k = 0; k < top_k; ++k) {
    uint best = 0, at = experts - 1;
    for (uint e = lane; e < experts; e += gl_SubgroupSize) {
      if (choices[e] > best) {
        best = choices[e];
        at = e;
      }
    }
    uint most = subgroupMax(best), id = subgroupMin(best == most ? at : experts - 1);
    if (id % gl_SubgroupSize == lane) {
      choices[id] = 0;
      chosen_id[k] = id;
    }
    meet();
  }
  float most = Floats(row_logits).at[chosen_id[0]];
  for (uint k = 1; k < top_k; ++k) most = max(most, Floats(row_logits).at[chosen_id[k]]);
  if (kRouter == TOPK_SOFTMAX) top = most;
}

void main() {
  uint row = gl_WorkGroupID.x, lane = gl_SubgroupInvocationID;
  if (row >= step_rows(step, domain) || gl_SubgroupID != 0) return;
  uint64_t row_logits = logits + uint64_t(row) * experts * 4;
  make_choices(row_logits);
  make_keys();
  choose(row_logits);
  float sum = 0;
  for (uint k = lane; k < top_k; k += gl_SubgroupSize) {
    chosen[k] = raw_score(Floats(row_logits).at[chosen_id[k]]);
    sum += chosen[k];
  }
  sum = subgroupAdd(sum);
  float whole = kNormalize || kRouter == TOPK_SOFTMAX ? sum + 1e-20 * total : total;
  for (uint k = lane; k < top_k; k += gl_SubgroupSize) {
    Ints(ids).at[row * top_k + k] = int(chosen_id[k]);
    Floats(weights).at[row * top_k + k] = chosen[k] / whole * routed_scale;
  }
}
