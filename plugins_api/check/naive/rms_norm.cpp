// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/naive/rms_norm.h"

#include "plugins_api/check/naive.h"

namespace switchyard::check::naive {

void rms_norm(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  using Op = swy::Operands<SWY_OP_RMS_NORM>;
  const auto a = c.attributes<swy_rms_norm_attrs>();
  const uint64_t n = c.width(Op::input("x"));
  const std::vector<float>& x = step.inputs[Op::input("x")].floats;
  const Weight& w = c.weights[Op::weight("w")];
  Matrix& out = outputs[Op::output("y")];
  for (uint64_t r = 0; r < out.rows; ++r) {
    const std::vector<double> y = normed(&x[r * n], n, a.eps);
    for (uint64_t i = 0; i < n; ++i) out.values[r * n + i] = y[i] * (a.weight_bias + w[i]);
  }
}

void add_rms_norm(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  using Op = swy::Operands<SWY_OP_ADD_RMS_NORM>;
  const auto a = c.attributes<swy_rms_norm_attrs>();
  const uint64_t n = c.width(Op::input("x"));
  const std::vector<float>& x = step.inputs[Op::input("x")].floats;
  const Weight& w = c.weights[Op::weight("w")];
  const std::vector<float>& residual = step.inputs[Op::input("residual")].floats;
  Matrix& sums = outputs[Op::output("sum")];
  for (uint64_t r = 0; r < sums.rows; ++r) {
    double* sum = &sums.values[r * n];
    for (uint64_t i = 0; i < n; ++i) {
      sum[i] = static_cast<double>(x[r * n + i]) + residual[r * n + i];
    }
    const std::vector<double> y = normed(sum, n, a.eps);
    for (uint64_t i = 0; i < n; ++i) outputs[Op::output("y")].values[r * n + i] = y[i] * (a.weight_bias + w[i]);
  }
}

void head_rms_norm(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  using Op = swy::Operands<SWY_OP_HEAD_RMS_NORM>;
  const auto a = c.attributes<swy_heads_attrs>();
  const uint64_t n = a.head_dim;
  const std::vector<float>& x = step.inputs[Op::input("x")].floats;
  const Weight& w = c.weights[Op::weight("w")];
  Matrix& out = outputs[Op::output("y")];
  for (uint64_t h = 0; h < out.rows * a.heads; ++h) {
    const std::vector<double> y = normed(&x[h * n], n, a.eps);
    for (uint64_t i = 0; i < n; ++i) out.values[h * n + i] = y[i] * (a.weight_bias + w[i]);
  }
}

void gated_rms_norm(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  using Op = swy::Operands<SWY_OP_GATED_RMS_NORM>;
  const auto a = c.attributes<swy_heads_attrs>();
  const uint64_t n = a.head_dim;
  const std::vector<float>& x = step.inputs[Op::input("x")].floats;
  const Weight& w = c.weights[Op::weight("w")];
  Matrix& out = outputs[Op::output("y")];
  const std::vector<float>& z = step.inputs[Op::input("z")].floats;
  for (uint64_t h = 0; h < out.rows * a.heads; ++h) {
    const std::vector<double> y = normed(&x[h * n], n, a.eps);
    for (uint64_t i = 0; i < n; ++i) {
      out.values[h * n + i] = y[i] * w[i] * silu(z[h * n + i]);
    }
  }
}

}  // namespace switchyard::check::naive
