// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/outcome.h"

#include <bit>

namespace switchyard::check {

bool Matrix::same_row(uint64_t row, const Matrix& other, uint64_t other_row) const {
  for (uint64_t i = 0; i < width; ++i) {
    if (dtype == SWY_I32) {
      if (ints[row * width + i] != other.ints[other_row * width + i]) return false;
    } else if (std::bit_cast<uint64_t>(values[row * width + i]) !=
               std::bit_cast<uint64_t>(other.values[other_row * width + i])) {
      return false;
    }
  }
  return true;
}

Outcome blank_outcome(const Case& c) {
  Outcome o;
  for (const Step& s : c.steps) {
    auto& outputs = o.outputs.emplace_back();
    for (const Operand& operand : c.outputs) {
      Matrix m{s.rows(operand.desc.rows), operand.desc.dims[1], operand.desc.dtype, {}, {}};
      if (m.dtype == SWY_I32) {
        m.ints.resize(m.rows * m.width);
      } else {
        m.values.resize(m.rows * m.width);
      }
      outputs.push_back(std::move(m));
    }
  }
  for (const State& s : c.states) o.states.emplace_back(s.content.begin(), s.content.end());
  o.tokens = c.tokens;
  return o;
}

}  // namespace switchyard::check
