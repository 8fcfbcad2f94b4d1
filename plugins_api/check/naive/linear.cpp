// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/naive.h"
#include "plugins_api/check/naive/rms_norm.h"

namespace switchyard::check::naive {
namespace {

// y [rows, out] = x [rows, in] * w^T
void multiply(const Weight& w, const double* x, Matrix& y) {
  const uint64_t in = w.desc.dims[1];
  for (uint64_t r = 0; r < y.rows; ++r) {
    for (uint64_t o = 0; o < y.width; ++o) {
      double sum = 0;
      for (uint64_t i = 0; i < in; ++i) sum += x[r * in + i] * w.values[o * in + i];
      y.values[r * y.width + o] = sum;
    }
  }
}

std::vector<double> wide(const std::vector<float>& x) { return {x.begin(), x.end()}; }

}  // namespace

void linear(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) multiply(c.weights[i], wide(step.inputs[0].floats).data(), outputs[i]);
}

void linear_add(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs) {
  linear(c, step, all, outputs);
  for (size_t i = 0; i < outputs[0].values.size(); ++i) outputs[0].values[i] += step.inputs[1].floats[i];
}

void rms_norm_linear(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  const auto a = c.attributes<swy_rms_norm_attrs>();
  const uint64_t n = c.width(0);
  std::vector<double> x;
  for (uint64_t r = 0; r < outputs[0].rows; ++r) {
    const std::vector<double> y = normed(&step.inputs[0].floats[r * n], n, a.eps);
    for (uint64_t i = 0; i < n; ++i) x.push_back(y[i] * (a.weight_bias + c.weights[0][i]));
  }
  for (size_t i = 0; i < outputs.size(); ++i) multiply(c.weights[i + 1], x.data(), outputs[i]);
}

}  // namespace switchyard::check::naive
