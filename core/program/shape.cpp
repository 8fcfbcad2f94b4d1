// SPDX-License-Identifier: Apache-2.0
#include "core/program/shape.h"

#include <algorithm>
#include <charconv>

namespace switchyard {
namespace {

constexpr std::string_view kNameCharacters = "abcdefghijklmnopqrstuvwxyz_0123456789[]";
constexpr std::string_view kEach = "[i]";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// sum: product {(+|-) product}; product: factor {(*|/) factor}; factor: number, name or (sum).
class Parser {
 public:
  Parser(std::string_view text, const ShapeNames& names, uint32_t repetition)
      : rest_(text), names_(names), repetition_(repetition) {}

  std::optional<uint64_t> whole() {
    const auto value = sum();
    return peek() == '\0' ? value : std::nullopt;
  }

 private:
  using Number = std::optional<uint64_t>;

  char peek() {
    rest_ = trimmed(rest_);
    return rest_.empty() ? '\0' : rest_.front();
  }
  bool take(char c) {
    if (peek() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  Number sum() {
    Number a = product();
    while (a) {
      uint64_t out = 0;
      const bool plus = take('+');
      if (!plus && !take('-')) break;
      const Number b = product();
      if (!b || (plus ? __builtin_add_overflow(*a, *b, &out) : __builtin_sub_overflow(*a, *b, &out))) return {};
      a = out;
    }
    return a;
  }
  Number product() {
    Number a = factor();
    while (a) {
      uint64_t out = 0;
      const bool times = take('*');
      if (!times && !take('/')) break;
      const Number b = factor();
      if (!b) return {};
      if (times ? __builtin_mul_overflow(*a, *b, &out) : *b == 0 || *a % *b != 0) return {};
      a = times ? out : *a / *b;
    }
    return a;
  }
  Number factor() {
    if (take('(')) {
      const Number inner = sum();
      return take(')') ? inner : std::nullopt;
    }
    const size_t length = std::min(rest_.find_first_not_of(kNameCharacters), rest_.size());
    const std::string_view word = rest_.substr(0, length);
    if (word.empty()) return {};
    rest_.remove_prefix(length);
    if (!is_digit(word.front())) return names_.find(word, repetition_);
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(word.begin(), word.end(), number);
    return error == std::errc() && end == word.end() ? Number(number) : std::nullopt;
  }

  std::string_view rest_;
  const ShapeNames& names_;
  const uint32_t repetition_;
};

}  // namespace

std::optional<uint64_t> ShapeNames::find(std::string_view name, uint32_t repetition) const {
  for (uint32_t i = 0; i < spec_.attr_count; ++i) {
    const swy_attr_spec& field = spec_.attrs[i];
    if (field.kind == SWY_ATTR_U32 && field.name == name) return swy_attr_word(attrs_.data(), field.offset);
  }
  if (!name.ends_with(kEach)) repetition = 0;
  for (const Bound& b : bound_) {
    if (b.name == name && b.repetition == repetition) return b.value;
  }
  return {};
}

void ShapeNames::bind(std::string_view name, uint32_t repetition, uint64_t value) {
  bound_.push_back({name, name.ends_with(kEach) ? repetition : 0, value});
}

std::optional<uint64_t> evaluate(std::string_view expression, const ShapeNames& names, uint32_t repetition) {
  return Parser(expression, names, repetition).whole();
}

std::string_view whole_name(std::string_view dimension) {
  const bool is = !dimension.empty() && !is_digit(dimension.front()) &&
                  dimension.find_first_not_of(kNameCharacters) == std::string_view::npos;
  return is ? dimension : std::string_view();
}

std::vector<std::string_view> dimensions_of(std::string_view shape) {
  std::vector<std::string_view> out;
  for (size_t comma = 0; comma != std::string_view::npos; shape.remove_prefix(comma + 1)) {
    comma = shape.find(',');
    out.push_back(trimmed(shape.substr(0, comma)));
    if (comma == std::string_view::npos) break;
  }
  return out;
}

}  // namespace switchyard
