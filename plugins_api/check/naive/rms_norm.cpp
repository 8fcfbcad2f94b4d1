// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/naive/rms_norm.h"

#include "plugins_api/check/naive.h"

namespace switchyard::check::naive {

void rms_norm(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  const auto a = c.attributes<swy_rms_norm_attrs>();
  const uint64_t n = c.width(0);
  for (uint64_t r = 0; r < outputs[0].rows; ++r) {
    const std::vector<double> y = normed(&step.inputs[0].floats[r * n], n, a.eps);
    for (uint64_t i = 0; i < n; ++i) outputs[0].values[r * n + i] = y[i] * (a.weight_bias + c.weights[0][i]);
  }
}

void add_rms_norm(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  const auto a = c.attributes<swy_rms_norm_attrs>();
  const uint64_t n = c.width(0);
  for (uint64_t r = 0; r < outputs[0].rows; ++r) {
    double* sum = &outputs[0].values[r * n];
    for (uint64_t i = 0; i < n; ++i) {
      sum[i] = static_cast<double>(step.inputs[0].floats[r * n + i]) + step.inputs[1].floats[r * n + i];
    }
    const std::vector<double> y = normed(sum, n, a.eps);
    for (uint64_t i = 0; i < n; ++i) outputs[1].values[r * n + i] = y[i] * (a.weight_bias + c.weights[0][i]);
  }
}

void head_rms_norm(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  const auto a = c.attributes<swy_heads_attrs>();
  const uint64_t n = a.head_dim;
  for (uint64_t h = 0; h < outputs[0].rows * a.heads; ++h) {
    const std::vector<double> y = normed(&step.inputs[0].floats[h * n], n, a.eps);
    for (uint64_t i = 0; i < n; ++i) outputs[0].values[h * n + i] = y[i] * (a.weight_bias + c.weights[0][i]);
  }
}

void gated_rms_norm(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  const auto a = c.attributes<swy_heads_attrs>();
  const uint64_t n = a.head_dim;
  for (uint64_t h = 0; h < outputs[0].rows * a.heads; ++h) {
    const std::vector<double> y = normed(&step.inputs[0].floats[h * n], n, a.eps);
    for (uint64_t i = 0; i < n; ++i) {
      outputs[0].values[h * n + i] = y[i] * c.weights[0][i] * silu(step.inputs[1].floats[h * n + i]);
    }
  }
}

}  // namespace switchyard::check::naive
