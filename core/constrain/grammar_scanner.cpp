// SPDX-License-Identifier: Apache-2.0
#include "core/constrain/grammar_scanner.h"

namespace switchyard::constrain {

uint32_t GrammarScanner::number() {
  uint32_t n = 0;
  for (; peek() >= '0' && peek() <= '9'; ++at_) {
    n = std::min(n * 10 + static_cast<uint32_t>(peek() - '0'), kMaxGrammarCount + 1);
  }
  return n;
}

Status GrammarScanner::counts(uint32_t& min, uint32_t& max) {
  const auto digit = [&] { return peek() >= '0' && peek() <= '9'; };
  const bool no_min = !digit();
  min = number();
  max = min;
  if (take(",")) {
    max = kUnbounded;
    if (digit()) max = number();
  } else if (no_min) {
    return wrong("a count has no number");
  }
  if (!take("}")) return wrong("a count without '}'");
  if (min > kMaxGrammarCount || (max != kUnbounded && max > kMaxGrammarCount)) return wrong("counts above 1000000");
  if (max < min) return wrong("the smaller count comes first");
  return {};
}

Result<uint32_t> GrammarScanner::escape() {
  if (!more()) return wrong("a backslash at the end");
  const char c = peek();
  size_t digits = 0;
  switch (c) {
    case 'n':
      ++at_;
      return uint32_t{'\n'};
    case 'r':
      ++at_;
      return uint32_t{'\r'};
    case 't':
      ++at_;
      return uint32_t{'\t'};
    case 'f':
      ++at_;
      return uint32_t{'\f'};
    case '0':
      ++at_;
      return uint32_t{0};
    case 'x':
      digits = 2;
      break;
    case 'u':
      digits = 4;
      break;
    case 'U':
      digits = 8;
      break;
    default:
      break;
  }
  if (digits == 0) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9')) {
      return error(Code::usage, "{} \\{}", wrong("unknown escape").message(), c);
    }
    return next_code_point(text_, at_);
  }
  ++at_;
  uint32_t value = 0;
  for (size_t i = 0; i < digits; ++i, ++at_) {
    const char d = peek();
    const bool decimal = d >= '0' && d <= '9', letter = (d | 32) >= 'a' && (d | 32) <= 'f';
    if (!decimal && !letter) return wrong("hexadecimal digits are missing");
    value = value * 16 + static_cast<uint32_t>(decimal ? d - '0' : (d | 32) - 'a' + 10);
  }
  if (value > kLastCodePoint) return wrong("no such character");
  return value;
}

}  // namespace switchyard::constrain
