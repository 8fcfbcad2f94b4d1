// SPDX-License-Identifier: Apache-2.0
#include "core/constrain/decimals.h"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

namespace switchyard::constrain {

Decimal decimal(const nlohmann::json& number) {
  std::string text;
  if (number.is_number_float()) {
    std::array<char, 1200> room;  // 1e-308 with 17 digits has less
    const auto end =
        std::to_chars(room.data(), room.data() + room.size(), number.get<double>(), std::chars_format::fixed);
    text.assign(room.data(), end.ptr);
  } else {
    text = number.dump();
  }
  Decimal d;
  d.negative = text.starts_with('-');
  if (d.negative) text.erase(0, 1);
  const size_t point = text.find('.');
  d.whole = text.substr(0, point);
  if (point != std::string::npos) d.fraction = text.substr(point + 1);
  while (d.fraction.ends_with('0')) d.fraction.pop_back();
  if (d.zero()) d.negative = false;
  return d;
}

Decimals::Decimals(Expressions& expressions) : x_(expressions) {
  digit_ = digits('0', '9');
  const Expr some = x_.repeat(digit_, 1, kUnbounded);
  whole_ = x_.either(digits('0', '0'), x_.concat(digits('1', '9'), x_.repeat(digit_, 0, kUnbounded)));
  fraction_ = x_.optional(x_.concat(x_.literal("."), some));
  zeros_ = x_.optional(x_.concat(x_.literal("."), x_.repeat(x_.literal("0"), 1, kUnbounded)));
  const Expr sign = x_.optional(x_.literal("-"));
  positive_ = x_.concat(whole_, fraction_);
  all_ = x_.concat(sign, positive_);
  integers_ = x_.concat({sign, whole_, zeros_});
}

Expr Decimals::digits(char low, char high) {
  return x_.bytes(ByteSet::range(static_cast<unsigned char>(low), static_cast<unsigned char>(high)));
}

Expr Decimals::all_with_exponents() {
  ByteSet e, sign;
  e.add('e');
  e.add('E');
  sign.add('+');
  sign.add('-');
  const Expr exponent = x_.concat({x_.bytes(e), x_.optional(x_.bytes(sign)), x_.repeat(digit_, 1, kUnbounded)});
  return x_.concat(all_, x_.optional(exponent));
}

Expr Decimals::equal(const Decimal& d) {
  const Expr sign = d.zero() ? x_.optional(x_.literal("-")) : x_.literal(d.negative ? "-" : "");
  if (d.fraction.empty()) return x_.concat({sign, x_.literal(d.whole), zeros_});
  return x_.concat(
      {sign, x_.literal(d.whole), x_.literal("." + d.fraction), x_.repeat(x_.literal("0"), 0, kUnbounded)});
}

// The whole numbers below this one.
Expr Decimals::less_whole(const std::string& whole) {
  std::vector<Expr> ways;
  const auto n = static_cast<uint32_t>(whole.size());
  if (n > 1) {
    ways.push_back(x_.literal("0"));
    ways.push_back(x_.concat(digits('1', '9'), x_.repeat(digit_, 0, n - 2)));
  }
  for (uint32_t i = 0; i < n; ++i) {
    const char lowest = i == 0 && n > 1 ? '1' : '0';
    if (whole[i] <= lowest) continue;
    ways.push_back(
        x_.concat({x_.literal(std::string_view(whole).substr(0, i)), digits(lowest, static_cast<char>(whole[i] - 1)),
                   x_.repeat(digit_, n - 1 - i, n - 1 - i)}));
  }
  return x_.either(std::move(ways));
}

// What may come after the whole part of a number to stay below one with this fraction.
Expr Decimals::fraction_below(const std::string& fraction, bool inclusive) {
  if (fraction.empty()) return inclusive ? zeros_ : kNothing;
  std::vector<Expr> ways;
  for (size_t i = 0; i < fraction.size(); ++i) {
    const Expr same = x_.literal(std::string_view(fraction).substr(0, i));
    if (i > 0) ways.push_back(same);
    if (fraction[i] == '0') continue;
    ways.push_back(
        x_.concat({same, digits('0', static_cast<char>(fraction[i] - 1)), x_.repeat(digit_, 0, kUnbounded)}));
  }
  if (inclusive) ways.push_back(x_.concat(x_.literal(fraction), x_.repeat(x_.literal("0"), 0, kUnbounded)));
  return x_.optional(x_.concat(x_.literal("."), x_.either(std::move(ways))));
}

// The numbers without a sign below the absolute value of this one.
Expr Decimals::below(const Decimal& d, bool inclusive) {
  return x_.either(x_.concat(less_whole(d.whole), fraction_),
                   x_.concat(x_.literal(d.whole), fraction_below(d.fraction, inclusive)));
}

Expr Decimals::at_most(const Decimal& d, bool inclusive) {
  const Expr minus = x_.literal("-");
  if (d.negative) return x_.concat(minus, x_.minus(positive_, below(d, !inclusive)));
  if (d.zero() && !inclusive) return x_.concat(minus, x_.minus(positive_, below(d, true)));
  return x_.either(x_.concat(minus, positive_), below(d, inclusive));
}

Result<Expr> Decimals::multiples(const Decimal& d) {
  constexpr size_t kMaxDigits = 7, kMaxScale = 255;
  std::string text = d.whole + d.fraction;
  text.erase(0, std::min(text.find_first_not_of('0'), text.size()));
  if (d.negative || text.empty()) return error(Code::usage, "multipleOf must be above 0");
  if (text.size() > kMaxDigits || d.fraction.size() > kMaxScale) {
    return error(Code::unsupported, "multipleOf {}{}{} is not supported: it has more than {} digits", d.whole,
                 d.fraction.empty() ? "" : ".", d.fraction, kMaxDigits);
  }
  const auto scale = static_cast<uint32_t>(d.fraction.size());
  return x_.both(all_, x_.multiple_of(static_cast<uint32_t>(std::stoul(text)), scale));
}

}  // namespace switchyard::constrain
