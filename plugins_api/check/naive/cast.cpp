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
  const bool to_bf16 = c.outputs[0].desc.dtype == SWY_BF16;
  for (uint64_t i = 0; i < outputs[0].values.size(); ++i) {
    outputs[0].values[i] = to_bf16 ? rounded(step.inputs[0].floats[i]) : step.inputs[0].floats[i];
  }
}

}  // namespace switchyard::check::naive
