// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/naive.h"

namespace switchyard::check::naive {

void embedding(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs) {
  using Op = swy::Operands<SWY_OP_EMBEDDING>;
  const Weight& table = c.weights[Op::weight("table")];
  Matrix& out = outputs[Op::output("y")];
  for (uint64_t r = 0; r < out.rows; ++r) {
    const int32_t word = step.tokens[r];
    const int32_t id = word < 0 ? all.tokens[static_cast<size_t>(-1 - word)] : word;
    for (uint64_t i = 0; i < out.width; ++i) {
      out.values[r * out.width + i] = table.at(static_cast<uint64_t>(id), i);
    }
  }
}

}  // namespace switchyard::check::naive
