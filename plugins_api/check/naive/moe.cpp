// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "plugins_api/check/naive.h"
#include "plugins_api/check/naive/activation.h"
#include "plugins_api/check/naive/router.h"

namespace switchyard::check::naive {
namespace {

using Moe = swy::Operands<SWY_OP_MOE, SWY_OP_MOE_ADD>;
using Experts = swy::Operands<SWY_OP_EXPERTS>;
using Given = swy::Operands<SWY_OP_MOE, SWY_OP_EXPERTS>;

double dot(const double* w, const double* x, uint64_t n) {
  double sum = 0;
  for (uint64_t i = 0; i < n; ++i) sum += w[i] * x[i];
  return sum;
}

// The matrices and biases of one expert, from where they begin; a bias may be NULL.
struct Expert {
  const double *gate, *up, *down;
  const double *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;
};

double biased(double x, const double* bias, uint64_t i) { return bias == nullptr ? x : x + bias[i]; }

// y += scale * (down act(gate x, up x))
void add_expert(const swy_moe_attrs& a, const Expert& e, uint64_t width, uint64_t hidden, double scale, const double* x,
                double* y) {
  std::vector<double> h(width);
  for (uint64_t i = 0; i < width; ++i) {
    h[i] = act(a, biased(dot(e.gate + i * hidden, x, hidden), e.gate_bias, i),
               biased(dot(e.up + i * hidden, x, hidden), e.up_bias, i));
  }
  for (uint64_t o = 0; o < hidden; ++o)
    y[o] += scale * biased(dot(e.down + o * width, h.data(), width), e.down_bias, o);
}

void routed(const Case& c, const swy_moe_attrs& a, const std::vector<Route>& routes, const double* x, uint64_t hidden,
            double* y) {
  const Weight *gate_up_bias = c.weight("gate_up_bias"), *down_bias = c.weight("down_bias");
  for (const Route& r : routes) {
    const double* gate = &c.weight("gate_up")->values[r.expert * 2 * a.width * hidden];
    Expert e{gate, gate + a.width * hidden, &c.weight("down")->values[r.expert * a.width * hidden]};
    if (gate_up_bias != nullptr) e.gate_bias = &gate_up_bias->values[r.expert * 2 * a.width];
    if (gate_up_bias != nullptr) e.up_bias = e.gate_bias + a.width;
    if (down_bias != nullptr) e.down_bias = &down_bias->values[r.expert * hidden];
    add_expert(a, e, a.width, hidden, r.weight, x, y);
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
  const auto values = [&](const char* name) { return c.weight(name)->values.data(); };
  add_expert(a, {values("shared_gate_proj"), values("shared_up_proj"), values("shared_down_proj")}, a.shared_width,
             hidden, scale, x, y);
}

}  // namespace

void moe(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  const swy_moe_attrs a = moe_attrs(c);
  const uint64_t hidden = c.width(Moe::input("x"));
  const bool injected = c.op == SWY_OP_MOE && c.inputs.size() > Given::input("expert_ids");
  const double* router_bias = c.weight("router_bias") == nullptr ? nullptr : c.weight("router_bias")->values.data();
  Matrix& out = outputs[Moe::output("y")];
  for (uint64_t r = 0; r < out.rows; ++r) {
    const float* row = &step.inputs[Moe::input("x")].floats[r * hidden];
    const std::vector<double> x(row, row + hidden);
    std::vector<double> logits;
    const Weight& router = c.weights[Moe::weight("router")];
    for (uint32_t e = 0; e < a.experts; ++e) {
      logits.push_back(biased(dot(&router.values[e * hidden], x.data(), hidden), router_bias, e));
    }
    double* y = &out.values[r * hidden];
    routed(c, a, injected ? given(step, r, a) : choose(a, logits, c.weight("correction_bias")), x.data(), hidden, y);
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
  const swy_moe_attrs a = moe_attrs(c);
  const uint64_t hidden = c.width(Experts::input("x"));
  Matrix& out = outputs[Experts::output("y")];
  for (uint64_t r = 0; r < out.rows; ++r) {
    const float* row = &step.inputs[Experts::input("x")].floats[r * hidden];
    const std::vector<double> x(row, row + hidden);
    routed(c, a, given(step, r, a), x.data(), hidden, &out.values[r * hidden]);
  }
}

}  // namespace switchyard::check::naive
