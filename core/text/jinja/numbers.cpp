// SPDX-License-Identifier: Apache-2.0
#include "core/text/jinja/numbers.h"

#include <charconv>
#include <string>

#include "core/text/jinja/budget.h"
#include "core/text/jinja/utf8.h"

namespace switchyard::jinja {

namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }

// The text without its underscores, or none when one of them is not between two digits (or letters, for a base above
// 10).
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    auto alnum = [](char c) { return digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    if (i == 0 || i + 1 == text.size() || !alnum(text[i - 1]) || !alnum(text[i + 1])) return std::nullopt;
  }
  return out;
}

bool lower_equal(std::string_view text, std::string_view word) { return utf8::lower(text) == word; }

}  // namespace

std::optional<int64_t> parse_int(std::string_view text, int base) {
  text = utf8::strip(text, nullptr, true, true);
  bool negative = !text.empty() && text[0] == '-';
  if (negative || (!text.empty() && text[0] == '+')) text.remove_prefix(1);
  if (text.size() > 2 && text[0] == '0') {
    char letter = static_cast<char>(text[1] | 0x20);
    int prefix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefix != 0 && (base == prefix || base == 0)) {
      text.remove_prefix(2);
      if (text[0] == '_') text.remove_prefix(1);
      base = prefix;
    }
  }
  if (base == 0) {
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos)
      return std::nullopt;
    base = 10;
  }
  auto digits = without_underscores(text);
  if (!digits || digits->empty() || (*digits)[0] == '-') return std::nullopt;
  std::string number = negative ? fmt::format("-{}", *digits) : *digits;
  int64_t value = 0;
  auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), value, base);
  if (end != number.data() + number.size()) return std::nullopt;
  if (problem == std::errc::result_out_of_range) fail("the integer {} does not fit 64 bits", number.substr(0, 40));
  return problem == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<double> parse_float(std::string_view text) {
  text = utf8::strip(text, nullptr, true, true);
  auto digits = without_underscores(text);
  if (!digits) return std::nullopt;
  std::string_view rest = *digits;
  bool negative = !rest.empty() && rest[0] == '-';
  if (negative || (!rest.empty() && rest[0] == '+')) rest.remove_prefix(1);
  if (rest.empty() || !(digit(rest[0]) || rest[0] == '.')) {
    bool infinite = lower_equal(rest, "inf") || lower_equal(rest, "infinity");
    if (!infinite && !lower_equal(rest, "nan")) return std::nullopt;
    double value = infinite ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    return negative ? -value : value;
  }
  double value = 0;
  auto [end, problem] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (end != rest.data() + rest.size()) return std::nullopt;
  if (problem == std::errc::result_out_of_range) value = std::strtod(std::string(rest).c_str(), nullptr);  // 0 or inf
  return negative ? -value : value;
}

void split_lines(std::string_view text, bool keep_ends, std::vector<std::string_view>& lines) {
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    char32_t point = utf8::decode(text, at);
    size_t next = at + utf8::width(text, at);
    bool ends = (point >= 0x0A && point <= 0x0D) || (point >= 0x1C && point <= 0x1E) || point == 0x85 ||
                point == 0x2028 || point == 0x2029;
    if (ends) {
      if (point == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.push_back(text.substr(start, (keep_ends ? next : at) - start));
      start = next;
    }
    at = next;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
}

}  // namespace switchyard::jinja
