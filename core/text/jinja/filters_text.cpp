// SPDX-License-Identifier: Apache-2.0
// Filters on text and numbers.
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "core/text/jinja/builtins.h"
#include "core/text/jinja/numbers.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/python_text.h"
#include "core/text/jinja/utf8.h"

namespace switchyard::jinja {

namespace {

// soft_str: the filtered value as text. Charged by to_text unless it is text already.
std::string soft(Call& c) {
  c.cx.budget.take(c.input.is(Kind::string) ? c.input.text().size() : 0);
  return c.input.is(Kind::string) ? c.input.text() : to_text(c.cx, c.input);
}

Value upper(Call& c) { return c.cx.text(utf8::upper(soft(c))); }
Value lower(Call& c) { return c.cx.text(utf8::lower(soft(c))); }
Value capitalize(Call& c) { return c.cx.text(utf8::capitalize(soft(c))); }
Value string(Call& c) { return c.input.is(Kind::string) ? c.input : c.cx.text(soft(c)); }

// jinja2's own title: words begin after white space and some brackets, not after every non-letter as in str.title.
Value title(Call& c) {
  std::string text = soft(c);
  std::string out;
  size_t word = 0;
  for (size_t at = 0; at <= text.size();) {
    bool end = at == text.size();
    char32_t point = end ? U' ' : utf8::decode(text, at);
    bool split = end || utf8::is_space(point) || (point < 0x80 && std::strchr("-({[<", static_cast<int>(point)));
    size_t next = end ? at + 1 : at + utf8::width(text, at);
    if (split) {
      std::string_view view = std::string_view(text).substr(word, at - word);
      if (!view.empty()) {
        size_t first = utf8::width(view, 0);
        out += utf8::upper(view.substr(0, first)) + utf8::lower(view.substr(first));
      }
      if (!end) out.append(text, at, next - at);
      word = next;
    }
    at = next;
  }
  return c.cx.text(std::move(out));
}

Value trim(Call& c) {
  std::string text = soft(c);
  bool chosen = c.given(0) && !c.arguments[0].is(Kind::none);
  std::string_view chars = chosen ? std::string_view(c.text(0)) : std::string_view();
  c.cx.budget.touch(text.size() * (1 + chars.size() / 16));
  return c.cx.text(utf8::strip(text, chosen ? &chars : nullptr, true, true));
}

Value replace(Call& c) {
  int64_t count = c.given(2) && !c.arguments[2].is(Kind::none) ? c.integer(2, -1) : -1;
  return replace_text(c.cx, soft(c), to_text(c.cx, c.at(0)), to_text(c.cx, c.at(1)), count);
}

Value indent(Call& c) {
  std::string unit;
  if (c.given(0) && c.arguments[0].is(Kind::string)) {
    unit = c.text(0);
  } else {
    int64_t width = c.integer(0, 4);
    c.cx.budget.take(width > 0 ? static_cast<uint64_t>(width) : 0);
    unit.assign(width > 0 ? static_cast<size_t>(width) : 0, ' ');
  }
  bool blank = c.flag(2, false);
  std::string out;
  if (c.flag(1, false)) out = unit;
  std::vector<std::string_view> lines;
  std::string text = soft(c) + "\n";  // jinja2 adds it, so that a last empty line counts
  split_lines(text, false, lines);
  for (size_t i = 0; i < lines.size(); ++i) {
    bool indented = i > 0 && (blank || !lines[i].empty());
    c.cx.budget.take(lines[i].size() + 1 + (indented ? unit.size() : 0));
    if (i > 0) out += '\n';
    if (indented) out += unit;
    out += lines[i];
  }
  return c.cx.text(std::move(out));
}

Value to_json_filter(Call& c) {
  JsonStyle style;
  style.ensure_ascii = c.flag(0, false);
  if (c.given(1) && !c.arguments[1].is(Kind::none)) {
    int64_t width = c.arguments[1].is(Kind::string) ? 0 : c.integer(1, 0);
    if (width > 64) fail("tojson indents by at most 64 spaces, not {}", width);
    style.indent = c.arguments[1].is(Kind::string) ? c.text(1)
                                                   : std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    style.item_separator.resize(1);  // without the blank: the line ends here
  }
  if (c.given(2) && !c.arguments[2].is(Kind::none)) {
    auto pair = iterate(c.cx, c.arguments[2]);
    if (pair->items.size() != 2 || !pair->items[0].is(Kind::string) || !pair->items[1].is(Kind::string)) {
      fail("the separators of tojson must be two texts, (between items, after a key)");
    }
    style.item_separator = pair->items[0].text();
    style.key_separator = pair->items[1].text();
  }
  style.sort_keys = c.flag(3, false);
  return c.cx.text(to_json(c.cx, c.input, style));
}

Value default_filter(Call& c) {
  bool use = c.input.is(Kind::undefined) || (c.flag(1, false) && !c.input.truthy());
  if (!use) return c.input;
  return c.given(0) ? c.arguments[0] : Value(std::string());
}

Value int_filter(Call& c) {
  if (c.input.is(Kind::undefined)) fail("{}, so it has no integer", c.input.why());
  int64_t base = c.integer(1, 10);
  if (c.input.is_integral()) return Value(c.input.integer());
  if (c.input.is(Kind::string)) {
    if (base != 0 && (base < 2 || base > 36)) return c.given(0) ? c.arguments[0] : Value(int64_t{0});
    if (auto parsed = parse_int(c.input.text(), static_cast<int>(base))) return Value(*parsed);
  }
  std::optional<double> real;
  if (c.input.is(Kind::real)) real = c.input.real();
  if (c.input.is(Kind::string)) real = parse_float(c.input.text());
  if (real && std::isfinite(*real)) {
    if (std::abs(*real) >= 9.2e18) fail("{} does not fit a 64-bit integer", float_repr(*real));
    return Value(static_cast<int64_t>(*real));
  }
  return c.given(0) ? c.arguments[0] : Value(int64_t{0});
}

Value float_filter(Call& c) {
  if (c.input.is(Kind::undefined)) fail("{}, so it has no number", c.input.why());
  if (c.input.is_number()) return Value(c.input.real());
  if (c.input.is(Kind::string)) {
    if (auto parsed = parse_float(c.input.text())) return Value(*parsed);
  }
  return c.given(0) ? c.arguments[0] : Value(0.0);
}

Value abs_filter(Call& c) {
  if (c.input.is(Kind::real)) return Value(std::abs(c.input.real()));
  if (!c.input.is_integral()) fail("abs needs a number, not {}", c.input.type_name());
  return c.input.integer() < 0 ? negate(c.input) : Value(c.input.integer());
}

Value round_filter(Call& c) {
  if (!c.input.is_number()) fail("round needs a number, not {}", c.input.type_name());
  int64_t precision = c.integer(0, 0);
  std::string_view method = "common";
  if (c.given(1)) method = c.text(1);
  if (precision < 0 || precision > 300) fail("round takes a precision from 0 to 300, not {}", precision);
  if (method == "common") {
    if (c.input.is_integral()) return Value(c.input.integer());
    if (!std::isfinite(c.input.real())) return c.input;
    // printf rounds the exact binary value half to even, as Python's round does.
    return Value(std::strtod(fmt::format("{:.{}f}", c.input.real(), precision).c_str(), nullptr));
  }
  if (method != "ceil" && method != "floor") fail("round knows the methods common, ceil and floor, not '{}'", method);
  double scale = std::pow(10.0, static_cast<double>(precision));
  double scaled = c.input.real() * scale;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

constexpr Builtin kTextFilters[] = {
    {"upper", "", upper},
    {"lower", "", lower},
    {"capitalize", "", capitalize},
    {"title", "", title},
    {"string", "", string},
    {"safe", "", string},  // nothing is ever HTML-escaped, so nothing needs to be marked
    {"trim", "chars", trim},
    {"replace", "old new count", replace},
    {"indent", "width first blank", indent},
    {"tojson", "ensure_ascii indent separators sort_keys", to_json_filter},
    {"default", "default_value boolean", default_filter},
    {"d", "default_value boolean", default_filter},
    {"int", "default base", int_filter},
    {"float", "default", float_filter},
    {"abs", "", abs_filter},
    {"round", "precision method", round_filter},
};

}  // namespace

const Builtin* detail::find_text_filter(std::string_view name) { return find_in(kTextFilters, name); }

const Builtin* find_filter(std::string_view name) {
  const Builtin* found = detail::find_text_filter(name);
  return found != nullptr ? found : detail::find_list_filter(name);
}

}  // namespace switchyard::jinja
