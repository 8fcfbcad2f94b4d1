// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "plugins_api/check/naive.h"

namespace switchyard::check::naive {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// outputs[0][r][i] = f(x, y), element by element.
template <class F>
void elements(const Step& step, Matrix& out, F f) {
  for (size_t i = 0; i < out.values.size(); ++i) out.values[i] = f(step.inputs[0].floats[i], step.inputs[1].floats[i]);
}

}  // namespace

void add(const Case&, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  elements(step, outputs[0], [](double x, double y) { return x + y; });
}
void silu_mul(const Case&, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  elements(step, outputs[0], [](double gate, double up) { return gate * sigmoid(gate) * up; });
}
void sigmoid_mul(const Case&, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  elements(step, outputs[0], [](double x, double gate) { return x * sigmoid(gate); });
}
void sigmoid_scale_add(const Case&, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  Matrix& out = outputs[0];
  for (uint64_t r = 0; r < out.rows; ++r) {
    const double g = sigmoid(step.inputs[2].floats[r]);
    for (uint64_t i = r * out.width; i < (r + 1) * out.width; ++i) {
      out.values[i] = step.inputs[0].floats[i] + g * step.inputs[1].floats[i];
    }
  }
}

}  // namespace switchyard::check::naive
