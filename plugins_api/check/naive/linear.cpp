// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/naive.h"
#include "plugins_api/check/naive/rms_norm.h"

namespace switchyard::check::naive {
namespace {

using Linear = swy::Operands<SWY_OP_LINEAR, SWY_OP_LINEAR_ADD>;
using LinearAdd = swy::Operands<SWY_OP_LINEAR_ADD>;
using RmsNormLinear = swy::Operands<SWY_OP_RMS_NORM_LINEAR>;

// y [rows, out] = x [rows, in] * w^T, and a bias if there is one
void multiply(const Weight& w, const Weight* bias, const double* x, Matrix& y) {
  const uint64_t in = w.desc.dims[1];
  for (uint64_t r = 0; r < y.rows; ++r) {
    for (uint64_t o = 0; o < y.width; ++o) {
      double sum = bias == nullptr ? 0 : (*bias)[o];
      for (uint64_t i = 0; i < in; ++i) sum += x[r * in + i] * w.values[o * in + i];
      y.values[r * y.width + o] = sum;
    }
  }
}

// The outputs' products of x, with the weights and biases from these on.
void multiply_all(const Case& c, const Weight* w, const double* x, std::vector<Matrix>& outputs) {
  const Weight* bias = c.weight("bias");
  for (size_t i = 0; i < outputs.size(); ++i) multiply(w[i], bias == nullptr ? nullptr : bias + i, x, outputs[i]);
}

std::vector<double> wide(const std::vector<float>& x) { return {x.begin(), x.end()}; }

}  // namespace

void linear(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  const std::vector<double> x = wide(step.inputs[Linear::input("x")].floats);
  multiply_all(c, &c.weights[Linear::weight("w")], x.data(), outputs);
}

void linear_add(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs) {
  linear(c, step, all, outputs);
  const std::vector<float>& residual = step.inputs[LinearAdd::input("residual")].floats;
  Matrix& y = outputs[LinearAdd::output("y")];
  for (size_t i = 0; i < y.values.size(); ++i) y.values[i] += residual[i];
}

void rms_norm_linear(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  const auto a = c.attributes<swy_rms_norm_attrs>();
  const uint64_t n = c.width(RmsNormLinear::input("x"));
  const Weight& norm = c.weights[RmsNormLinear::weight("norm")];
  std::vector<double> x;
  for (uint64_t r = 0; r < outputs[0].rows; ++r) {
    const std::vector<double> y = normed(&step.inputs[RmsNormLinear::input("x")].floats[r * n], n, a.eps);
    for (uint64_t i = 0; i < n; ++i) x.push_back(y[i] * (a.weight_bias + norm[i]));
  }
  multiply_all(c, &c.weights[RmsNormLinear::weight("w")], x.data(), outputs);
}

}  // namespace switchyard::check::naive
