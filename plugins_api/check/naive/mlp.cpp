// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/naive.h"
#include "plugins_api/check/naive/activation.h"

namespace switchyard::check::naive {
namespace {

using Mlp = swy::Operands<SWY_OP_MLP, SWY_OP_MLP_ADD>;

double dot(const Weight& w, uint64_t row, const double* x, uint64_t n) {
  double sum = 0;
  for (uint64_t i = 0; i < n; ++i) sum += w.at(row, i) * x[i];
  return sum;
}

}  // namespace

void mlp(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  const auto a = c.attributes<swy_mlp_attrs>();
  const uint64_t hidden = c.width(Mlp::input("x"));
  const Weight &gate = c.weights[Mlp::weight("gate")], &up = c.weights[Mlp::weight("up")],
               &down = c.weights[Mlp::weight("down")];
  Matrix& y = outputs[Mlp::output("y")];
  for (uint64_t r = 0; r < y.rows; ++r) {
    const float* row = &step.inputs[Mlp::input("x")].floats[r * hidden];
    const std::vector<double> x(row, row + hidden);
    std::vector<double> h;
    for (uint64_t i = 0; i < a.width; ++i) {
      h.push_back(act(a, dot(gate, i, x.data(), hidden), dot(up, i, x.data(), hidden)));
    }
    for (uint64_t o = 0; o < y.width; ++o) y.values[r * y.width + o] = dot(down, o, h.data(), a.width);
  }
}

void mlp_add(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs) {
  mlp(c, step, all, outputs);
  const std::vector<float>& residual = step.inputs[swy::Operands<SWY_OP_MLP_ADD>::input("residual")].floats;
  std::vector<double>& y = outputs[Mlp::output("y")].values;
  for (size_t i = 0; i < y.size(); ++i) y[i] += residual[i];
}

}  // namespace switchyard::check::naive
