// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "plugins_api/check/naive.h"

namespace switchyard::check::naive {
namespace {

// To 8 bits of mantissa, ties to even. For normal numbers.
double rounded(double x) {
  if (x == 0) return 0;
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(x, 8 - exponent)), exponent - 8);
}

}  // namespace

void cast(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  using Op = swy::Operands<SWY_OP_CAST>;
  const bool to_bf16 = c.outputs[Op::output("y")].desc.dtype == SWY_BF16;
  const std::vector<float>& x = step.inputs[Op::input("x")].floats;
  std::vector<double>& y = outputs[Op::output("y")].values;
  for (uint64_t i = 0; i < y.size(); ++i) {
    y[i] = to_bf16 ? rounded(x[i]) : x[i];
  }
}

}  // namespace switchyard::check::naive
