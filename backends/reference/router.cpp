// SPDX-License-Identifier: Apache-2.0
// The router of MOE and ROUTER_TOPK.
#include <algorithm>
#include <cmath>

#include "arithmetic.h"

namespace reference {
namespace {

// How the logits [experts] of one row are scored. A score is raw(e) / total().
class Scores {
 public:
  Scores(const swy_moe_attrs& a, const float* logits) : router_(a.router), logits_(logits) {
    if (router_ != SWY_ROUTER_SOFTMAX_TOPK) return;
    top_ = *std::max_element(logits, logits + a.experts);
    total_ = 0;
    for (uint32_t e = 0; e < a.experts; ++e) total_ += raw(e);
  }
  double raw(uint32_t e) const {
    return router_ == SWY_ROUTER_SIGMOID_TOPK ? sigmoid(logits_[e]) : std::exp(logits_[e] - top_);
  }
  double total() const { return total_; }
  // Before the correction.
  double choice(uint32_t e) const { return router_ == SWY_ROUTER_TOPK_SOFTMAX ? logits_[e] : raw(e) / total_; }
  // Of TOPK_SOFTMAX: of those taken.
  void set_top(double top) { top_ = top; }

 private:
  swy_router router_;
  const float* logits_;
  double top_ = 0, total_ = 1;
};

// The sum of the two largest of [n]; of one, itself.
double group_rank(const double* choices, uint32_t n) {
  double first = choices[0], second = n == 1 ? 0 : -INFINITY;
  for (uint32_t i = 1; i < n; ++i) {
    second = std::max(second, std::min(first, choices[i]));
    first = std::max(first, choices[i]);
  }
  return first + second;
}

// Sets the choices of all but the top_groups highest groups to -inf.
void keep_top_groups(const swy_moe_attrs& a, double* choices) {
  const uint32_t size = a.experts / a.expert_groups;
  const auto rank = [&](uint32_t g) { return group_rank(choices + uint64_t{g} * size, size); };
  const auto before = [](double rank_g, uint32_t g, double rank_h, uint32_t h) {
    return rank_g > rank_h || (rank_g == rank_h && g < h);
  };
  double cut = INFINITY;  // the last one that remains
  uint32_t cut_group = 0;
  for (uint32_t taken = 0; taken < a.top_groups; ++taken) {
    double next = -INFINITY;
    uint32_t next_group = a.expert_groups;
    for (uint32_t g = 0; g < a.expert_groups; ++g) {
      const double r = rank(g);
      const bool after = taken == 0 || before(cut, cut_group, r, g);
      if (after && (next_group == a.expert_groups || before(r, g, next, next_group))) next = r, next_group = g;
    }
    cut = next, cut_group = next_group;
  }
  for (uint32_t g = 0; g < a.expert_groups; ++g) {
    if (before(cut, cut_group, rank(g), g)) std::fill_n(choices + uint64_t{g} * size, size, -INFINITY);
  }
}

// The ids of the top_k largest choices, the largest first; ties to the lowest id.
template <class T>
void take_largest(const swy_moe_attrs& a, const T* choices, int32_t* ids) {
  for (uint32_t j = 0; j < a.top_k; ++j) {
    int32_t best = -1;
    for (uint32_t e = 0; e < a.experts; ++e) {
      const bool taken = std::find(ids, ids + j, static_cast<int32_t>(e)) != ids + j;
      if (!taken && (best < 0 || choices[e] > choices[best])) best = static_cast<int32_t>(e);
    }
    ids[j] = std::max(best, 0);
  }
}

void weigh(const swy_moe_attrs& a, const float* logits, Scores& scores, const int32_t* ids, float* weights) {
  if (a.router == SWY_ROUTER_TOPK_SOFTMAX) {
    float top = logits[ids[0]];
    for (uint32_t j = 1; j < a.top_k; ++j) top = std::max(top, logits[ids[j]]);
    scores.set_top(top);
  }
  double sum = 0;
  for (uint32_t j = 0; j < a.top_k; ++j) sum += scores.raw(static_cast<uint32_t>(ids[j]));
  const bool shares = a.normalize != 0 || a.router == SWY_ROUTER_TOPK_SOFTMAX;
  const double whole = shares ? sum + 1e-20 * scores.total() : scores.total();
  for (uint32_t j = 0; j < a.top_k; ++j) {
    weights[j] = static_cast<float>(scores.raw(static_cast<uint32_t>(ids[j])) / whole * a.routed_scale);
  }
}

void route_row(const swy_moe_attrs& a, const float* logits, const std::optional<Weight>& correction, double* choices,
               int32_t* ids, float* weights) {
  Scores scores(a, logits);
  if (has_choices(a)) {
    for (uint32_t e = 0; e < a.experts; ++e) choices[e] = scores.choice(e) + (correction ? correction->at(e) : 0.0);
    if (a.expert_groups > 1) keep_top_groups(a, choices);
    take_largest(a, choices, ids);
  } else {  // logits have the order of their scores, and are not made equal by rounding
    take_largest(a, logits, ids);
  }
  weigh(a, logits, scores, ids, weights);
}

}  // namespace

void route(const swy::Call& call, const swy_moe_attrs& a, const float* logits, double* choices, int32_t* ids,
           float* weights) {
  const auto correction = optional_weight(call, "correction_bias");
  const auto [first, last] = call.split(call.step->rows);
  for (uint64_t r = first; r < last; ++r) {
    double* of_row = has_choices(a) ? choices + r * a.experts : nullptr;
    route_row(a, logits + r * a.experts, correction, of_row, ids + r * a.top_k, weights + r * a.top_k);
  }
}

}  // namespace reference
