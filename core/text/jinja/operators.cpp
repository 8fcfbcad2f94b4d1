// SPDX-License-Identifier: Apache-2.0
#include "core/text/jinja/operators.h"

#include <cmath>
#include <limits>

namespace switchyard::jinja {

namespace {

[[noreturn]] void bad_operands(std::string_view op, const Value& a, const Value& b) {
  if (a.is(Kind::undefined)) fail("{}, so it has no '{}'", a.why(), op);
  if (b.is(Kind::undefined)) fail("{}, so it has no '{}'", b.why(), op);
  fail("'{}' does not work between {} and {}", op, a.type_name(), b.type_name());
}

[[noreturn]] void overflow(std::string_view op) { fail("the result of '{}' does not fit a 64-bit integer", op); }

bool equal_lists(Context& cx, const List& a, const List& b) {
  if (&a == &b) return true;
  if (a.shape != b.shape || a.shape == List::Shape::lazy || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!equal(cx, a.items[i], b.items[i])) return false;
  }
  return true;
}

bool equal_dicts(Context& cx, const Dict& a, const Dict& b) {
  if (&a == &b) return true;
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = find(cx, b, key);
    if (other == nullptr || !equal(cx, value, *other)) return false;
  }
  return true;
}

bool equal_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
  return a.real() == b.real();
}

// Python's floor division and modulo: the remainder has the divisor's sign.
Value floor_integers(std::string_view op, int64_t a, int64_t b) {
  if (b == 0) fail("division by zero");
  if (b == -1) {
    if (op == "%") return Value(int64_t{0});
    if (a == std::numeric_limits<int64_t>::min()) overflow(op);
    return Value(-a);
  }
  int64_t quotient = a / b;
  int64_t remainder = a % b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) {
    remainder += b;
    --quotient;
  }
  return Value(op == "%" ? remainder : quotient);
}

Value floor_reals(std::string_view op, double a, double b) {
  if (b == 0) fail("division by zero");
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) {
      remainder += b;
      quotient -= 1.0;
    }
  } else {
    remainder = std::copysign(0.0, b);
  }
  if (op == "%") return Value(remainder);
  if (quotient == 0) return Value(std::copysign(0.0, a / b));
  double floored = std::floor(quotient);
  return Value(quotient - floored > 0.5 ? floored + 1.0 : floored);
}

Value power_integers(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail("zero cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) overflow("**");
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow("**");
  }
  return Value(result);
}

Value real_arithmetic(std::string_view op, double a, double b) {
  if (op == "-") return Value(a - b);
  if (op == "//" || op == "%") return floor_reals(op, a, b);
  if (op == "/") {
    if (b == 0) fail("division by zero");
    return Value(a / b);
  }
  if (a == 0 && b < 0) fail("zero cannot be raised to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
    fail("a negative number to the power {} is complex", b);
  }
  double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) fail("the result of '**' is too large for a float");
  return Value(result);
}

Value repeat(Context& cx, const Value& what, int64_t times) {
  uint64_t count = times < 0 ? 0 : static_cast<uint64_t>(times);
  uint64_t unit = what.is(Kind::string) ? what.text().size() : what.list().items.size() * sizeof(Value);
  uint64_t total = 0;
  if (__builtin_mul_overflow(unit, count, &total)) total = std::numeric_limits<uint64_t>::max() / 2;
  cx.budget.take(total);
  if (unit == 0) count = 0;
  if (what.is(Kind::string)) {
    std::string out;
    out.reserve(total);
    for (uint64_t i = 0; i < count; ++i) out += what.text();
    return Value(std::move(out));
  }
  std::vector<Value> items;
  for (uint64_t i = 0; i < count; ++i) {
    items.insert(items.end(), what.list().items.begin(), what.list().items.end());
  }
  return Value(List::make(std::move(items), what.list().shape));
}

bool repeatable(const Value& value) {
  return value.is(Kind::string) || (value.is(Kind::list) && value.list().shape <= List::Shape::tuple);
}

}  // namespace

bool equal(Context& cx, const Value& a, const Value& b) {
  cx.budget.step();
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.kind() != b.kind()) return false;
  Budget::Frame frame(cx.budget);
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::string:
      cx.budget.touch(a.text().size());
      return a.text() == b.text();
    case Kind::list:
      return equal_lists(cx, a.list(), b.list());
    case Kind::dict:
      return equal_dicts(cx, a.dict(), b.dict());
    case Kind::space:
      return &a.space() == &b.space();
    case Kind::loop:
      return &a.loop() == &b.loop();
    case Kind::callable:
      return &a.callable() == &b.callable();
    default:
      return false;
  }
}

bool less(Context& cx, const Value& a, const Value& b) {
  cx.budget.step();
  if (a.is_integral() && b.is_integral()) return a.integer() < b.integer();
  if (a.is_number() && b.is_number()) return a.real() < b.real();
  if (a.is(Kind::string) && b.is(Kind::string)) {
    cx.budget.touch(a.text().size());
    return a.text() < b.text();  // UTF-8 sorts as its code points do
  }
  if (!a.is(Kind::list) || !b.is(Kind::list) || a.list().shape != b.list().shape || !repeatable(a)) {
    bad_operands("<", a, b);
  }
  Budget::Frame frame(cx.budget);
  const auto& left = a.list().items;
  const auto& right = b.list().items;
  for (size_t i = 0; i < left.size() && i < right.size(); ++i) {
    if (!equal(cx, left[i], right[i])) return less(cx, left[i], right[i]);
  }
  return left.size() < right.size();
}

bool at_most(Context& cx, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return less(cx, a, b) || equal_numbers(a, b);
  return !less(cx, b, a);
}

Value add(Context& cx, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    int64_t sum = 0;
    if (__builtin_add_overflow(a.integer(), b.integer(), &sum)) overflow("+");
    return Value(sum);
  }
  if (a.is_number() && b.is_number()) return Value(a.real() + b.real());
  if (a.is(Kind::string) && b.is(Kind::string)) {
    cx.budget.take(a.text().size() + b.text().size());
    return Value(a.text() + b.text());
  }
  if (a.is(Kind::list) && b.is(Kind::list) && repeatable(a) && a.list().shape == b.list().shape) {
    cx.budget.take((a.list().items.size() + b.list().items.size()) * sizeof(Value));
    std::vector<Value> items = a.list().items;
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    return Value(List::make(std::move(items), a.list().shape));
  }
  bad_operands("+", a, b);
}

Value multiply(Context& cx, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    int64_t product = 0;
    if (__builtin_mul_overflow(a.integer(), b.integer(), &product)) overflow("*");
    return Value(product);
  }
  if (a.is_number() && b.is_number()) return Value(a.real() * b.real());
  if (repeatable(a) && b.is_integral()) return repeat(cx, a, b.integer());
  if (repeatable(b) && a.is_integral()) return repeat(cx, b, a.integer());
  bad_operands("*", a, b);
}

Value arithmetic(std::string_view op, const Value& a, const Value& b) {
  if (op == "%" && a.is(Kind::string)) fail("formatting with '%' is not supported; join the parts with '~'");
  if (!a.is_number() || !b.is_number()) bad_operands(op, a, b);
  if (!a.is_integral() || !b.is_integral() || op == "/") return real_arithmetic(op, a.real(), b.real());
  if (op == "//" || op == "%") return floor_integers(op, a.integer(), b.integer());
  if (op == "**") return power_integers(a.integer(), b.integer());
  int64_t difference = 0;
  if (__builtin_sub_overflow(a.integer(), b.integer(), &difference)) overflow("-");
  return Value(difference);
}

Value negate(const Value& value) {
  if (value.is(Kind::real)) return Value(-value.real());
  if (!value.is_integral()) {
    if (value.is(Kind::undefined)) fail("{}, so it cannot be negated", value.why());
    fail("'-' does not work on {}", value.type_name());
  }
  int64_t result = 0;
  if (__builtin_sub_overflow(int64_t{0}, value.integer(), &result)) overflow("-");
  return Value(result);
}

}  // namespace switchyard::jinja
