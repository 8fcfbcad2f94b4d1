// SPDX-License-Identifier: Apache-2.0
#include "core/text/jinja/text_literal.h"

#include <charconv>

#include <fmt/format.h>

#include "core/text/jinja/utf8.h"

namespace switchyard::jinja {

namespace {

// The number of `digits` hexadecimal digits at `literal[at]`.
std::optional<uint32_t> hex(std::string_view literal, size_t at, size_t digits) {
  if (at + digits > literal.size()) return std::nullopt;
  uint32_t value = 0;
  const char* begin = literal.data() + at;
  auto [end, problem] = std::from_chars(begin, begin + digits, value, 16);
  return problem == std::errc() && end == begin + digits ? std::optional(value) : std::nullopt;
}

}  // namespace

std::optional<std::string> unescape(std::string_view literal, std::string& why) {
  constexpr std::string_view letters = "\\'\"abfnrtv", meanings = "\\'\"\a\b\f\n\r\t\v";
  std::string out;
  for (size_t at = 0; at < literal.size(); ++at) {
    if (literal[at] != '\\' || at + 1 == literal.size()) {
      out += literal[at];
      continue;
    }
    char c = literal[++at];
    if (size_t i = letters.find(c); i != std::string_view::npos) {
      out += meanings[i];
    } else if (c >= '0' && c <= '7') {
      uint32_t value = 0;
      size_t n = 0;
      for (; n < 3 && at + n < literal.size() && literal[at + n] >= '0' && literal[at + n] <= '7'; ++n) {
        value = value * 8 + static_cast<uint32_t>(literal[at + n] - '0');
      }
      utf8::append(out, value);
      at += n - 1;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      auto value = hex(literal, at + 1, digits);
      if (!value) {
        why = fmt::format("the escape '\\{}' needs {} hexadecimal digits", c, digits);
        return std::nullopt;
      }
      if (*value > 0x10FFFF || (*value >= 0xD800 && *value < 0xE000)) {
        why = fmt::format("the escape '\\{}' names no character: {:x}", c, *value);
        return std::nullopt;
      }
      utf8::append(out, *value);
      at += digits;
    } else if (c == 'N') {
      why = "the escape '\\N' is not supported; write the character itself";
      return std::nullopt;
    } else if (c != '\n') {  // a newline after a backslash continues the line
      out += '\\';
      out += c;
    }
  }
  return out;
}

}  // namespace switchyard::jinja
