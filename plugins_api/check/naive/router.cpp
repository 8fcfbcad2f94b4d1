// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/naive/router.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plugins_api/check/naive.h"
#include "plugins_api/check/naive/rms_norm.h"

namespace switchyard::check::naive {
namespace {

using Router = swy::Operands<SWY_OP_ROUTER_TOPK>;

std::vector<double> softmax(const std::vector<double>& x) {
  const double top = *std::max_element(x.begin(), x.end());
  std::vector<double> y;
  double sum = 0;
  for (const double v : x) sum += std::exp(v - top);
  for (const double v : x) y.push_back(std::exp(v - top) / sum);
  return y;
}

}  // namespace

swy_moe_attrs moe_attrs(const Case& c) {
  const swy_op op = c.header();
  return swy_moe_of(&op);
}

std::vector<uint32_t> largest(const std::vector<double>& x, uint32_t n) {
  std::vector<uint32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return x[a] > x[b]; });
  order.resize(n);
  return order;
}

std::vector<double> scores_of(const swy_moe_attrs& a, const std::vector<double>& logits) {
  if (a.router == SWY_ROUTER_TOPK_SOFTMAX) return logits;
  if (a.router == SWY_ROUTER_SOFTMAX_TOPK) return softmax(logits);
  std::vector<double> out;
  for (const double l : logits) out.push_back(sigmoid(l));
  return out;
}

std::vector<double> group_ranks(const swy_moe_attrs& a, const std::vector<double>& choices) {
  const uint32_t size = a.experts / a.expert_groups;
  std::vector<double> ranks;
  for (uint32_t g = 0; g < a.expert_groups; ++g) {
    std::vector<double> group(choices.begin() + g * size, choices.begin() + (g + 1) * size);
    std::sort(group.rbegin(), group.rend());
    ranks.push_back(size == 1 ? group[0] : group[0] + group[1]);
  }
  return ranks;
}

std::vector<double> in_top_groups(const swy_moe_attrs& a, const std::vector<double>& choices) {
  if (a.expert_groups < 2) return choices;
  const uint32_t size = a.experts / a.expert_groups;
  std::vector<double> out(choices.size(), -INFINITY);
  for (const uint32_t g : largest(group_ranks(a, choices), a.top_groups)) {
    std::copy_n(choices.begin() + g * size, size, out.begin() + g * size);
  }
  return out;
}

std::vector<Route> choose(const swy_moe_attrs& a, const std::vector<double>& logits, const Weight* correction) {
  const std::vector<double> scores = scores_of(a, logits);
  // Logits have the order of their scores, and stay apart where those round to one number.
  std::vector<double> choices = correction == nullptr && a.expert_groups < 2 ? logits : scores;
  for (uint32_t e = 0; correction != nullptr && e < a.experts; ++e) choices[e] += (*correction)[e];
  std::vector<Route> out;
  std::vector<double> taken;
  for (const uint32_t e : largest(in_top_groups(a, choices), a.top_k)) {
    out.push_back({e, scores[e]});
    taken.push_back(scores[e]);
  }
  if (a.router == SWY_ROUTER_TOPK_SOFTMAX) taken = softmax(taken);
  const double sum = std::accumulate(taken.begin(), taken.end(), 1e-20);
  const bool shares = a.router != SWY_ROUTER_TOPK_SOFTMAX && a.normalize != 0;
  for (size_t j = 0; j < out.size(); ++j) out[j].weight = taken[j] / (shares ? sum : 1) * a.routed_scale;
  return out;
}

void router_topk(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  const swy_moe_attrs a = moe_attrs(c);
  Matrix &ids = outputs[Router::output("expert_ids")], &weights = outputs[Router::output("expert_weights")];
  for (uint64_t r = 0; r < ids.rows; ++r) {
    const float* row = &step.inputs[Router::input("logits")].floats[r * a.experts];
    const std::vector<Route> routes = choose(a, {row, row + a.experts}, c.weight("correction_bias"));
    for (uint32_t j = 0; j < a.top_k; ++j) {
      ids.ints[r * a.top_k + j] = static_cast<int32_t>(routes[j].expert);
      weights.values[r * a.top_k + j] = routes[j].weight;
    }
  }
}

}  // namespace switchyard::check::naive
