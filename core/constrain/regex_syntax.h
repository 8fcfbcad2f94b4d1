// SPDX-License-Identifier: Apache-2.0
// Regular expressions as users write them, into expressions over UTF-8 bytes. The syntax is what ECMA-262 and PCRE2
// have in common: classes, groups, alternatives, counts, escapes, \p{category}, (?i) and (?s). What is not regular
// (look-behind, back references, word boundaries, atomic groups) is refused by name, and so is look-ahead where more
// of the pattern follows its group.
#pragma once

#include <string_view>

#include "core/base/status.h"
#include "core/constrain/expressions.h"

namespace switchyard::constrain {

struct RegexOptions {
  bool search = false;       // the pattern may match anywhere in the text, as JSON Schema's `pattern` does
  bool ignore_case = false;  // as (?i)
  bool dot_all = false;      // as (?s)
};

// Of a pattern that searches, the result also has texts that are not UTF-8; intersect it with `characters()`.
// Errors: usage, with the offset in the pattern.
Result<Expr> parse_regex(Expressions& expressions, std::string_view pattern, const RegexOptions& options = {});

}  // namespace switchyard::constrain
