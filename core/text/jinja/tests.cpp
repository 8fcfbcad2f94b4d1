// SPDX-License-Identifier: Apache-2.0
// Tests: what may follow `is`.
#include "core/text/jinja/builtins.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/python_text.h"
#include "core/text/jinja/utf8.h"

namespace switchyard::jinja {

namespace {

template <Kind kind>
Value is_kind(Call& c) {
  return Value(c.input.is(kind));
}

Value defined(Call& c) { return Value(!c.input.is(Kind::undefined)); }
// In jinja2 an undefined value counts as callable: calling it is what reports the name.
Value callable(Call& c) { return Value(c.input.is(Kind::callable) || c.input.is(Kind::undefined)); }
Value is_number(Call& c) { return Value(c.input.is_number()); }
Value is_true(Call& c) { return Value(c.input.is(Kind::boolean) && c.input.boolean()); }
Value is_false(Call& c) { return Value(c.input.is(Kind::boolean) && !c.input.boolean()); }

Value sequence(Call& c) {
  return Value(c.input.is(Kind::string) || c.input.is(Kind::dict) || c.input.is(Kind::undefined) ||
               (c.input.is(Kind::list) && c.input.list().indexable()));
}

Value iterable(Call& c) {
  return Value(c.input.is(Kind::string) || c.input.is(Kind::dict) || c.input.is(Kind::undefined) ||
               c.input.is(Kind::list));
}

int64_t remainder(const Value& value, const Value& divisor) {
  Value result = arithmetic("%", value, divisor);
  return result.is_integral() ? result.integer() : result.real() == 0 ? 0 : result.real() == 1 ? 1 : 2;
}
Value odd(Call& c) { return Value(remainder(c.input, Value(int64_t{2})) == 1); }
Value even(Call& c) { return Value(remainder(c.input, Value(int64_t{2})) == 0); }
Value divisible_by(Call& c) { return Value(remainder(c.input, c.at(0)) == 0); }

Value eq(Call& c) { return Value(equal(c.cx, c.input, c.at(0))); }
Value ne(Call& c) { return Value(!equal(c.cx, c.input, c.at(0))); }
Value lt(Call& c) { return Value(less(c.cx, c.input, c.at(0))); }
Value gt(Call& c) { return Value(less(c.cx, c.at(0), c.input)); }
Value le(Call& c) { return Value(at_most(c.cx, c.input, c.at(0))); }
Value ge(Call& c) { return Value(at_most(c.cx, c.at(0), c.input)); }
Value in(Call& c) { return Value(contains(c.cx, c.at(0), c.input)); }

// Identity. Values that Python makes one object of (None, booleans) are the use of this test.
Value same_as(Call& c) { return Value(c.input.kind() == c.at(0).kind() && equal(c.cx, c.input, c.at(0))); }

Value lower_case(Call& c) {
  std::string text = to_text(c.cx, c.input);
  bool cased = false;
  for (size_t at = 0; at < text.size(); at += utf8::width(text, at)) {
    if (utf8::is_upper(utf8::decode(text, at))) return Value(false);
    cased = cased || utf8::is_lower(utf8::decode(text, at));
  }
  return Value(cased);
}

Value upper_case(Call& c) {
  std::string text = to_text(c.cx, c.input);
  bool cased = false;
  for (size_t at = 0; at < text.size(); at += utf8::width(text, at)) {
    if (utf8::is_lower(utf8::decode(text, at))) return Value(false);
    cased = cased || utf8::is_upper(utf8::decode(text, at));
  }
  return Value(cased);
}

Value known_filter(Call& c) { return Value(c.input.is(Kind::string) && find_filter(c.input.text()) != nullptr); }
Value known_test(Call& c) { return Value(c.input.is(Kind::string) && find_test(c.input.text()) != nullptr); }

constexpr Builtin kTests[] = {
    {"defined", "", defined},
    {"undefined", "", is_kind<Kind::undefined>},
    {"none", "", is_kind<Kind::none>},
    {"string", "", is_kind<Kind::string>},
    {"mapping", "", is_kind<Kind::dict>},
    {"boolean", "", is_kind<Kind::boolean>},
    {"integer", "", is_kind<Kind::integer>},
    {"float", "", is_kind<Kind::real>},
    {"callable", "", callable},
    {"number", "", is_number},
    {"true", "", is_true},
    {"false", "", is_false},
    {"sequence", "", sequence},
    {"iterable", "", iterable},
    {"odd", "", odd},
    {"even", "", even},
    {"divisibleby", "num", divisible_by},
    {"eq", "other", eq},
    {"==", "other", eq},
    {"equalto", "other", eq},
    {"ne", "other", ne},
    {"!=", "other", ne},
    {"lt", "other", lt},
    {"<", "other", lt},
    {"lessthan", "other", lt},
    {"gt", "other", gt},
    {">", "other", gt},
    {"greaterthan", "other", gt},
    {"le", "other", le},
    {"<=", "other", le},
    {"ge", "other", ge},
    {">=", "other", ge},
    {"in", "seq", in},
    {"sameas", "other", same_as},
    {"lower", "", lower_case},
    {"upper", "", upper_case},
    {"filter", "", known_filter},
    {"test", "", known_test},
};

}  // namespace

const Builtin* find_test(std::string_view name) { return detail::find_in(kTests, name); }

}  // namespace switchyard::jinja
