// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/naive.h"

namespace switchyard::check::naive {

void lm_head(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  using Op = swy::Operands<SWY_OP_LM_HEAD>;
  const uint64_t n = c.width(Op::input("x"));
  const Weight& w = c.weights[Op::weight("w")];
  Matrix& logits = outputs[Op::output("logits")];
  for (uint64_t r = 0; r < logits.rows; ++r) {
    const float* x = &step.inputs[Op::input("x")].floats[step.logit_rows[r] * n];
    for (uint64_t o = 0; o < logits.width; ++o) {
      double sum = 0;
      for (uint64_t i = 0; i < n; ++i) sum += x[i] * w.at(o, i);
      logits.values[r * logits.width + o] = sum;
    }
  }
}

void gather_rows(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  using Op = swy::Operands<SWY_OP_GATHER_ROWS>;
  const uint64_t n = c.width(Op::input("x"));
  Matrix& y = outputs[Op::output("y")];
  for (uint64_t i = 0; i < y.values.size(); ++i) {
    y.values[i] = step.inputs[Op::input("x")].floats[step.logit_rows[i / n] * n + i % n];
  }
}

}  // namespace switchyard::check::naive
