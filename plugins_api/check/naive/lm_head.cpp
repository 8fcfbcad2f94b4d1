// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/naive.h"

namespace switchyard::check::naive {

void lm_head(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  const uint64_t n = c.width(0);
  for (uint64_t r = 0; r < outputs[0].rows; ++r) {
    const float* x = &step.inputs[0].floats[step.logit_rows[r] * n];
    for (uint64_t o = 0; o < outputs[0].width; ++o) {
      double sum = 0;
      for (uint64_t i = 0; i < n; ++i) sum += x[i] * c.weights[0].at(o, i);
      outputs[0].values[r * outputs[0].width + o] = sum;
    }
  }
}

void gather_rows(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  const uint64_t n = c.width(0);
  for (uint64_t i = 0; i < outputs[0].values.size(); ++i) {
    outputs[0].values[i] = step.inputs[0].floats[step.logit_rows[i / n] * n + i % n];
  }
}

}  // namespace switchyard::check::naive
