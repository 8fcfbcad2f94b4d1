// SPDX-License-Identifier: Apache-2.0
// What the readers of written grammars share: a place in a text, with its line for messages.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/constrain/code_points.h"
#include "core/constrain/rule_set.h"
#include "core/constrain/text_scanner.h"

namespace switchyard::constrain {

class GrammarScanner : public TextScanner {
 public:
  using TextScanner::TextScanner;

  // Spaces and comments, which begin with `comment`; line ends too, if `lines`.
  void space(std::string_view comment, bool lines) {
    while (more()) {
      const char c = peek();
      if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else if (text_.substr(at_).starts_with(comment)) {
        while (more() && peek() != '\n') ++at_;
      } else {
        return;
      }
    }
  }
  template <class Is>
  std::string_view word(Is is) {
    const size_t from = at_;
    while (more() && is(peek())) ++at_;
    return text_.substr(from, at_ - from);
  }
  // Takes *, + or ?, if one stands here.
  bool take_repeat(uint32_t& min, uint32_t& max) {
    min = peek() == '+' ? 1 : 0;
    max = peek() == '?' ? 1 : kUnbounded;
    return take("*") || take("+") || take("?");
  }
  // {n}, {n,}, {n,m}, after the '{'.
  Status counts(uint32_t& min, uint32_t& max);
  uint32_t number();
  Status wrong(std::string_view what) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    return error(Code::usage, "wrong in line {}: {}", line, what);
  }
  // The character after a backslash. Errors: usage.
  Result<uint32_t> escape();
};

inline RuleTerm repeated(RuleTerm term, uint32_t min, uint32_t max) {
  RuleTerm out{RuleTerm::Kind::repeat};
  out.min = min;
  out.max = max;
  out.kids.push_back(std::move(term));
  return out;
}

constexpr uint32_t kMaxGrammarCount = 1'000'000;
constexpr unsigned kMaxGrammarDepth = 64;  // of groups

}  // namespace switchyard::constrain
