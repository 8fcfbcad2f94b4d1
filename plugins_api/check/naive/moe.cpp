// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "plugins_api/check/naive.h"
#include "plugins_api/check/naive/rms_norm.h"

namespace switchyard::check::naive {
namespace {

using Moe = swy::Operands<SWY_OP_MOE, SWY_OP_MOE_ADD>;
using Experts = swy::Operands<SWY_OP_EXPERTS>;
using Given = swy::Operands<SWY_OP_MOE, SWY_OP_EXPERTS>;
using Router = swy::Operands<SWY_OP_ROUTER_TOPK>;

struct Route {
  uint32_t expert;
  double weight;
};

double dot(const double* w, const double* x, uint64_t n) {
  double sum = 0;
  for (uint64_t i = 0; i < n; ++i) sum += w[i] * x[i];
  return sum;
}

// The top_k of softmax(logits), divided by their sum.
std::vector<Route> choose(const std::vector<double>& logits, uint32_t top_k) {
  std::vector<uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
  std::vector<Route> out;
  double sum = 0;
  for (uint32_t j = 0; j < top_k; ++j) {
    out.push_back({order[j], std::exp(logits[order[j]] - logits[order[0]])});
    sum += out.back().weight;
  }
  for (Route& r : out) r.weight /= sum;
  return out;
}

// y += scale * down(silu(gate x) * up x); the matrices begin at these rows of their weights.
void expert(const double* gate, const double* up, const double* down, uint64_t width, uint64_t hidden, double scale,
            const double* x, double* y) {
  std::vector<double> h(width);
  for (uint64_t i = 0; i < width; ++i) h[i] = silu(dot(gate + i * hidden, x, hidden)) * dot(up + i * hidden, x, hidden);
  for (uint64_t o = 0; o < hidden; ++o) y[o] += scale * dot(down + o * width, h.data(), width);
}

void routed(const Weight& gate_up, const Weight& downs, const swy_moe_attrs& a, const std::vector<Route>& routes,
            const double* x, uint64_t hidden, double* y) {
  for (const Route& r : routes) {
    const double* gate = &gate_up.values[r.expert * 2 * a.width * hidden];
    const double* down = &downs.values[r.expert * a.width * hidden];
    expert(gate, gate + a.width * hidden, down, a.width, hidden, r.weight, x, y);
  }
}

std::vector<Route> given(const Step& step, uint64_t row, const swy_moe_attrs& a) {
  std::vector<Route> out;
  for (uint64_t j = row * a.top_k; j < (row + 1) * a.top_k; ++j) {
    const auto id = static_cast<uint32_t>(step.inputs[Given::input("expert_ids")].ints[j]);
    out.push_back({std::min(id, a.experts - 1), step.inputs[Given::input("expert_weights")].floats[j]});
  }
  return out;
}

void shared(const Case& c, const swy_moe_attrs& a, const double* x, uint64_t hidden, double* y) {
  const double scale = sigmoid(dot(c.weights[Moe::weight("shared_gate")].values.data(), x, hidden));
  expert(c.weights[Moe::weight("shared_gate_proj")].values.data(),
         c.weights[Moe::weight("shared_up_proj")].values.data(),
         c.weights[Moe::weight("shared_down_proj")].values.data(), a.shared_width, hidden, scale, x, y);
}

}  // namespace

void moe(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  const auto a = c.attributes<swy_moe_attrs>();
  const uint64_t hidden = c.width(Moe::input("x"));
  const bool injected = c.op == SWY_OP_MOE && c.inputs.size() > Given::input("expert_ids");
  Matrix& out = outputs[Moe::output("y")];
  for (uint64_t r = 0; r < out.rows; ++r) {
    const float* row = &step.inputs[Moe::input("x")].floats[r * hidden];
    const std::vector<double> x(row, row + hidden);
    std::vector<double> logits;
    const Weight& router = c.weights[Moe::weight("router")];
    for (uint32_t e = 0; e < a.experts; ++e) logits.push_back(dot(&router.values[e * hidden], x.data(), hidden));
    double* y = &out.values[r * hidden];
    routed(c.weights[Moe::weight("gate_up")], c.weights[Moe::weight("down")], a,
           injected ? given(step, r, a) : choose(logits, a.top_k), x.data(), hidden, y);
    if (a.shared_width != 0) shared(c, a, x.data(), hidden, y);
  }
}

void moe_add(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs) {
  moe(c, step, all, outputs);
  const std::vector<float>& residual = step.inputs[swy::Operands<SWY_OP_MOE_ADD>::input("residual")].floats;
  std::vector<double>& y = outputs[Moe::output("y")].values;
  for (size_t i = 0; i < y.size(); ++i) y[i] += residual[i];
}

void experts(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  const auto a = c.attributes<swy_moe_attrs>();
  const uint64_t hidden = c.width(Experts::input("x"));
  Matrix& out = outputs[Experts::output("y")];
  for (uint64_t r = 0; r < out.rows; ++r) {
    const float* row = &step.inputs[Experts::input("x")].floats[r * hidden];
    const std::vector<double> x(row, row + hidden);
    routed(c.weights[Experts::weight("gate_up")], c.weights[Experts::weight("down")], a, given(step, r, a), x.data(),
           hidden, &out.values[r * hidden]);
  }
}

void router_topk(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  const auto a = c.attributes<swy_moe_attrs>();
  Matrix &ids = outputs[Router::output("expert_ids")], &weights = outputs[Router::output("expert_weights")];
  for (uint64_t r = 0; r < ids.rows; ++r) {
    const float* row = &step.inputs[Router::input("logits")].floats[r * a.experts];
    const std::vector<Route> routes = choose({row, row + a.experts}, a.top_k);
    for (uint32_t j = 0; j < a.top_k; ++j) {
      ids.ints[r * a.top_k + j] = static_cast<int32_t>(routes[j].expert);
      weights.values[r * a.top_k + j] = routes[j].weight;
    }
  }
}

}  // namespace switchyard::check::naive
