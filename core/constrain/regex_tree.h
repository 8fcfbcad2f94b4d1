// SPDX-License-Identifier: Apache-2.0
// A parsed regular expression, in which anchors are still apart; and its expression.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "core/constrain/expressions.h"

namespace switchyard::constrain {

struct RegexTree {
  enum class Kind : uint8_t { leaf, begin, end, ahead, not_ahead, sequence, either, repeat };
  Kind kind = Kind::leaf;
  Expr expr = kNothing;  // of a leaf
  uint32_t min = 0, max = 0;
  std::vector<RegexTree> kids = {};
};

// What lies beside a part of the pattern.
enum class Edge : uint8_t {
  inside,  // more of the pattern, so that an anchor could not match
  open,    // any text
  text,    // the text's own end
};

// Errors: usage, for an anchor where it is neither first nor last, and for a look-ahead in a group that is not last.
Result<Expr> lower(Expressions& expressions, const RegexTree& tree, Edge left, Edge right);

}  // namespace switchyard::constrain
