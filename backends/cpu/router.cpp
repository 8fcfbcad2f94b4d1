// SPDX-License-Identifier: Apache-2.0
// The router of MOE, and ROUTER_TOPK: which experts a row takes, and how much of each.
#include <cmath>
#include <limits>
#include <tuple>

#include "moe.h"

namespace cpu {
namespace {

using Router = swy::Operands<SWY_OP_ROUTER_TOPK>;

// The best so far, the best first. Candidates come by rising id, and one enters only if it is strictly better, so of
// equal ones the lowest id stays.
struct Best {
  uint32_t most;
  int32_t* ids;
  float* values;
  uint32_t count = 0;

  void offer(const float* choices, uint32_t first, uint32_t last) {
    for (uint32_t e = first; e < last; ++e) {
      if (count == most && !(choices[e] > values[count - 1])) continue;
      uint32_t at = count < most ? count++ : most - 1;
      for (; at > 0 && choices[e] > values[at - 1]; --at) {
        values[at] = values[at - 1];
        ids[at] = ids[at - 1];
      }
      values[at] = choices[e];
      ids[at] = static_cast<int32_t>(e);
    }
  }
};

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// The sum of the two largest of [n]; of one, itself.
float group_rank(const float* choices, uint32_t n) {
  if (n == 1) return choices[0];
  float first = -std::numeric_limits<float>::infinity(), second = first;
  for (uint32_t i = 0; i < n; ++i) {
    second = std::max(second, std::min(first, choices[i]));
    first = std::max(first, choices[i]);
  }
  return first + second;
}

// The largest logit and the sum of all exp(logit - largest).
std::pair<float, float> softmax_sum(const float* logits, uint32_t experts) {
  const float top = *std::max_element(logits, logits + experts);
  float sum = 0;
  for (uint32_t e = 0; e < experts; ++e) sum += std::exp(logits[e] - top);
  return {top, sum};
}

bool by_logits(const swy_moe_attrs& a) { return a.correction_bias == 0 && a.expert_groups == 1; }

}  // namespace

Routing::Routing(const swy::Call& call) : a_(swy_moe_of(call.op)), correction_(call, "correction_bias") {}

uint64_t Routing::scratch_floats(const swy_op& op) {
  const swy_moe_attrs a = swy_moe_of(&op);
  return by_logits(a) ? 0 : uint64_t{a.experts} + a.expert_groups;
}

void Routing::choose(const float* logits, float* choices) const {
  const auto [top, sum] =
      a_.router == SWY_ROUTER_SOFTMAX_TOPK ? softmax_sum(logits, a_.experts) : std::pair<float, float>{0.0f, 1.0f};
  if (correction_) {
    correction_.load(0, a_.experts, choices);
  } else {
    std::fill_n(choices, a_.experts, 0.0f);
  }
  for (uint32_t e = 0; e < a_.experts; ++e) {
    const float score = a_.router == SWY_ROUTER_SIGMOID_TOPK   ? sigmoid(logits[e])
                        : a_.router == SWY_ROUTER_TOPK_SOFTMAX ? logits[e]
                                                               : std::exp(logits[e] - top) / sum;
    choices[e] += score;
  }
}

void Routing::row(const float* logits, float* scratch, int32_t* ids, float* weights) const {
  Best best{a_.top_k, ids, weights};
  if (by_logits(a_)) {  // scores are in this order too, and logits do not become equal by rounding
    best.offer(logits, 0, a_.experts);
  } else {
    choose(logits, scratch);
    const uint32_t size = a_.experts / a_.expert_groups;
    float* ranks = scratch + a_.experts;
    for (uint32_t g = 0; g < a_.expert_groups; ++g) ranks[g] = group_rank(scratch + uint64_t{g} * size, size);
    for (uint32_t g = 0; g < a_.expert_groups; ++g) {
      uint32_t before = 0;
      for (uint32_t h = 0; h < a_.expert_groups; ++h) before += ranks[h] > ranks[g] || (ranks[h] == ranks[g] && h < g);
      if (before < a_.top_groups) best.offer(scratch, g * size, (g + 1) * size);
    }
  }
  weigh(logits, ids, weights);
}

void Routing::weigh(const float* logits, const int32_t* ids, float* weights) const {
  const uint32_t k = a_.top_k;
  float sum = 0;
  if (a_.router == SWY_ROUTER_SIGMOID_TOPK) {
    for (uint32_t j = 0; j < k; ++j) sum += weights[j] = sigmoid(logits[ids[j]]);
    sum = a_.normalize != 0 ? sum + 1e-20f : 1.0f;
  } else {
    const bool shares = a_.router == SWY_ROUTER_TOPK_SOFTMAX || a_.normalize != 0;
    float top = logits[ids[0]], all = 0;
    for (uint32_t j = 1; j < k; ++j) top = std::max(top, logits[ids[j]]);
    // Where the largest logit need not be taken, or where all count.
    if (a_.router == SWY_ROUTER_SOFTMAX_TOPK && (!shares || !by_logits(a_))) {
      std::tie(top, all) = softmax_sum(logits, a_.experts);
    }
    for (uint32_t j = 0; j < k; ++j) sum += weights[j] = std::exp(logits[ids[j]] - top);
    sum = shares ? sum + 1e-20f * all : all;
  }
  for (uint32_t j = 0; j < k; ++j) weights[j] = weights[j] / sum * a_.routed_scale;
}

namespace {

void router_topk(const swy::Call& call) {
  const Routing routing(call);
  const auto& a = call.attrs<swy_moe_attrs>();
  const float* logits = call.input(Router::input("logits"));
  auto* ids = call.output<int32_t>(Router::output("expert_ids"));
  float* weights = call.output(Router::output("expert_weights"));
  float* scratch = call.work<float>(0) + call.rank() * Routing::scratch_floats(*call.op);
  const auto [first, last] = call.split(call.step->rows);
  for (uint64_t r = first; r < last; ++r) {
    routing.row(logits + r * a.experts, scratch, ids + r * a.top_k, weights + r * a.top_k);
  }
}

uint64_t router_workspace(const swy_op& op, const swy_bucket&) {
  return Routing::scratch_floats(op) * sizeof(float) * swy::team_width;
}
double router_cost(const swy_op& op, const swy_bucket& bucket) {
  return cost_of(4.0 * bucket.rows * static_cast<double>(op.inputs[Router::input("logits")]->dims[1]));
}
bool few_rows(const swy_op&, const swy_bucket& bucket) { return bucket.rows <= 2; }

constexpr swy::HostKernel kKernels[] = {
    {.name = "router_topk.plain",
     .op = SWY_OP_ROUTER_TOPK,
     .cost = router_cost,
     .run = router_topk,
     .workspace = router_workspace,
     .serial = few_rows,
     .op_revision = 2},
};

}  // namespace

std::span<const swy::HostKernel> router_kernels() { return kKernels; }

}  // namespace cpu
