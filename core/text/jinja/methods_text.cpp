// SPDX-License-Identifier: Apache-2.0
// Methods of str, and the text work that filters share with them.
#include <algorithm>
#include <cstring>

#include "core/text/jinja/builtins.h"
#include "core/text/jinja/numbers.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/python_text.h"
#include "core/text/jinja/utf8.h"

namespace switchyard::jinja {

namespace {

constexpr size_t npos = std::string_view::npos;

// Linear, where string_view::find is quadratic on hostile text.
size_t find_text(std::string_view text, std::string_view what, size_t from = 0) {
  if (from > text.size()) return npos;
  const void* hit = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  return hit == nullptr ? npos : static_cast<size_t>(static_cast<const char*>(hit) - text.data());
}

Value upper(Call& c) { return c.cx.text(utf8::upper(c.input.text())); }
Value lower(Call& c) { return c.cx.text(utf8::lower(c.input.text())); }
Value title(Call& c) { return c.cx.text(utf8::title(c.input.text())); }
Value capitalize(Call& c) { return c.cx.text(utf8::capitalize(c.input.text())); }

Value strip_sides(Call& c, bool left, bool right) {
  bool chosen = c.given(0) && !c.arguments[0].is(Kind::none);
  std::string_view chars = chosen ? std::string_view(c.text(0)) : std::string_view();
  c.cx.budget.touch(c.input.text().size() * (1 + chars.size() / 16));
  return c.cx.text(utf8::strip(c.input.text(), chosen ? &chars : nullptr, left, right));
}
Value strip(Call& c) { return strip_sides(c, true, true); }
Value lstrip(Call& c) { return strip_sides(c, true, false); }
Value rstrip(Call& c) { return strip_sides(c, false, true); }

// The part of the text that optional arguments `i` (start) and `i + 1` (stop) choose, and the byte at which it begins.
struct Part {
  std::string_view text;
  size_t begin = 0;
  int64_t start = 0;  // in code points
  bool valid = true;  // false when the start lies beyond the end: then even an empty text is not found
};
Part part(Call& c, size_t i) {
  std::string_view text = c.input.text();
  c.cx.budget.touch(text.size());
  Part out{text, 0, 0, true};
  bool has_start = c.given(i) && !c.arguments[i].is(Kind::none);
  bool has_stop = c.given(i + 1) && !c.arguments[i + 1].is(Kind::none);
  if (!has_start && !has_stop) return out;
  int64_t size = static_cast<int64_t>(utf8::length(text));
  auto place = [&](int64_t n) { return n < 0 ? std::max<int64_t>(n + size, 0) : n; };
  int64_t start = place(has_start ? c.integer(i, 0) : 0);
  int64_t stop = std::min(place(has_stop ? c.integer(i + 1, size) : size), size);
  if (start > stop) return Part{text.substr(0, 0), 0, 0, false};
  for (int64_t k = 0; k < start; ++k) out.begin += utf8::width(text, out.begin);
  size_t end = out.begin;
  for (int64_t k = start; k < stop; ++k) end += utf8::width(text, end);
  out.text = text.substr(out.begin, end - out.begin);
  out.start = start;
  return out;
}

// startswith and endswith: argument 0 is a text or a tuple of texts.
Value affix(Call& c, bool at_start) {
  Part p = part(c, 1);
  auto matches = [&](const Value& affix_text) {
    if (!affix_text.is(Kind::string)) fail("a str or a tuple of str is needed, not {}", affix_text.type_name());
    c.cx.budget.touch(affix_text.text().size());
    return p.valid && (at_start ? p.text.starts_with(affix_text.text()) : p.text.ends_with(affix_text.text()));
  };
  const Value& wanted = c.at(0);
  if (!wanted.is(Kind::list) || wanted.list().shape != List::Shape::tuple) return Value(matches(wanted));
  const auto& items = wanted.list().items;
  return Value(std::any_of(items.begin(), items.end(), matches));
}
Value starts_with(Call& c) { return affix(c, true); }
Value ends_with(Call& c) { return affix(c, false); }

int64_t find_place(Call& c, bool from_right) {
  Part p = part(c, 1);
  const std::string& what = c.text(0);
  size_t at = npos;
  if (p.valid) at = from_right ? p.text.rfind(what) : find_text(p.text, what);
  if (from_right) c.cx.budget.step(p.text.size() * what.size() / 64);
  return at == npos ? -1 : p.start + static_cast<int64_t>(utf8::length(p.text.substr(0, at)));
}
Value find_method_(Call& c) { return Value(find_place(c, false)); }
Value rfind(Call& c) { return Value(find_place(c, true)); }
Value index_of(Call& c) {
  int64_t place = find_place(c, false);
  if (place < 0) fail("{} is not in the text", to_repr(c.cx, c.at(0)));
  return Value(place);
}

Value count_of(Call& c) {
  Part p = part(c, 1);
  const std::string& what = c.text(0);
  if (!p.valid) return Value(int64_t{0});
  if (what.empty()) return Value(static_cast<int64_t>(utf8::length(p.text)) + 1);
  int64_t n = 0;
  for (size_t at = find_text(p.text, what); at != npos; at = find_text(p.text, what, at + what.size())) ++n;
  return Value(n);
}

Value replace(Call& c) { return replace_text(c.cx, c.input.text(), c.text(0), c.text(1), c.integer(2, -1)); }

Value join(Call& c) {
  auto items = iterate(c.cx, c.at(0));
  for (const Value& each : items->items) {
    if (!each.is(Kind::string)) fail("str.join needs texts, not {}", each.type_name());
  }
  return join_text(c.cx, *items, c.input.text());
}

Value pieces(Call& c, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  for (std::string_view each : parts) items.push_back(c.cx.text(each));
  return c.cx.list(std::move(items));
}

// Splits at white space, from the left; the rest after `limit` cuts keeps its white space.
std::vector<std::string_view> split_at_space(Call& c, int64_t limit) {
  std::vector<std::string_view> parts;
  std::string_view rest = utf8::strip(c.input.text(), nullptr, true, false);
  while (!rest.empty()) {
    c.cx.budget.take(sizeof(rest));
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(rest);
      break;
    }
    size_t at = 0;
    while (at < rest.size() && !utf8::is_space(utf8::decode(rest, at))) at += utf8::width(rest, at);
    parts.push_back(rest.substr(0, at));
    rest = utf8::strip(rest.substr(at), nullptr, true, false);
  }
  return parts;
}

// The same from the right; the parts come last first.
std::vector<std::string_view> rsplit_at_space(Call& c, int64_t limit) {
  std::vector<std::string_view> parts;
  std::string_view rest = utf8::strip(c.input.text(), nullptr, false, true);
  while (!rest.empty()) {
    c.cx.budget.take(sizeof(rest));
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(rest);
      break;
    }
    size_t at = rest.size();
    while (at > 0 && !utf8::is_space(utf8::decode(rest, utf8::before(rest, at)))) at = utf8::before(rest, at);
    parts.push_back(rest.substr(at));
    rest = utf8::strip(rest.substr(0, at), nullptr, false, true);
  }
  return parts;
}

Value split_text(Call& c, bool from_right) {
  std::string_view rest = c.input.text();
  c.cx.budget.touch(rest.size());
  int64_t limit = c.integer(1, -1);
  std::vector<std::string_view> parts;
  if (!c.given(0) || c.arguments[0].is(Kind::none)) {
    parts = from_right ? rsplit_at_space(c, limit) : split_at_space(c, limit);
  } else {
    const std::string& separator = c.text(0);
    if (separator.empty()) fail("split needs a separator that is not empty");
    while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
      if (from_right) c.cx.budget.step(separator.size() / 4);  // rfind may compare that much at every byte
      size_t at = from_right ? rest.rfind(separator) : find_text(rest, separator);
      if (at == npos) break;
      c.cx.budget.take(sizeof(rest));
      parts.push_back(from_right ? rest.substr(at + separator.size()) : rest.substr(0, at));
      rest = from_right ? rest.substr(0, at) : rest.substr(at + separator.size());
    }
    parts.push_back(rest);
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return pieces(c, parts);
}
Value split(Call& c) { return split_text(c, false); }
Value rsplit(Call& c) { return split_text(c, true); }

Value lines(Call& c) {
  std::vector<std::string_view> parts;
  c.cx.budget.take(c.input.text().size() * sizeof(std::string_view));
  split_lines(c.input.text(), c.flag(0, false), parts);
  return pieces(c, parts);
}

Value cut(Call& c, bool from_right) {
  std::string_view text = c.input.text();
  const std::string& separator = c.text(0);
  if (separator.empty()) fail("partition needs a separator that is not empty");
  c.cx.budget.touch(text.size() * (from_right ? separator.size() : 1));
  size_t at = from_right ? text.rfind(separator) : find_text(text, separator);
  std::vector<Value> parts;
  if (at == npos) {
    for (size_t i = 0; i < 3; ++i) parts.push_back(i == (from_right ? 2u : 0u) ? c.input : Value(std::string()));
  } else {
    parts = {c.cx.text(text.substr(0, at)), c.arguments[0], c.cx.text(text.substr(at + separator.size()))};
  }
  return c.cx.list(std::move(parts), List::Shape::tuple);
}
Value partition(Call& c) { return cut(c, false); }
Value rpartition(Call& c) { return cut(c, true); }

Value remove_prefix(Call& c) {
  std::string_view text = c.input.text();
  return text.starts_with(c.text(0)) ? c.cx.text(text.substr(c.text(0).size())) : c.input;
}
Value remove_suffix(Call& c) {
  std::string_view text = c.input.text();
  return text.ends_with(c.text(0)) ? c.cx.text(text.substr(0, text.size() - c.text(0).size())) : c.input;
}

// True when the text is not empty and `accepts` every character.
Value every(Call& c, bool (*accepts)(char32_t)) {
  const std::string& text = c.input.text();
  c.cx.budget.touch(text.size());
  for (size_t at = 0; at < text.size(); at += utf8::width(text, at)) {
    if (!accepts(utf8::decode(text, at))) return Value(false);
  }
  return Value(!text.empty());
}
Value is_digit(Call& c) { return every(c, utf8::is_digit); }
Value is_alpha(Call& c) { return every(c, utf8::is_letter); }
Value is_space(Call& c) { return every(c, utf8::is_space); }
Value is_alnum(Call& c) {
  return every(c, [](char32_t point) { return utf8::is_letter(point) || utf8::is_digit(point); });
}
Value is_lower(Call& c) { return c.cx.call(*find_test("lower"), c.input, {}); }
Value is_upper(Call& c) { return c.cx.call(*find_test("upper"), c.input, {}); }

constexpr Builtin kMethods[] = {
    {"startswith", "prefix start end", starts_with},
    {"endswith", "suffix start end", ends_with},
    {"strip", "chars", strip},
    {"lstrip", "chars", lstrip},
    {"rstrip", "chars", rstrip},
    {"split", "sep maxsplit", split},
    {"rsplit", "sep maxsplit", rsplit},
    {"splitlines", "keepends", lines},
    {"replace", "old new count", replace},
    {"join", "iterable", join},
    {"find", "sub start end", find_method_},
    {"rfind", "sub start end", rfind},
    {"index", "sub start end", index_of},
    {"count", "sub start end", count_of},
    {"partition", "sep", partition},
    {"rpartition", "sep", rpartition},
    {"removeprefix", "prefix", remove_prefix},
    {"removesuffix", "suffix", remove_suffix},
    {"upper", "", upper},
    {"lower", "", lower},
    {"title", "", title},
    {"capitalize", "", capitalize},
    {"isdigit", "", is_digit},
    {"isalpha", "", is_alpha},
    {"isalnum", "", is_alnum},
    {"isspace", "", is_space},
    {"islower", "", is_lower},
    {"isupper", "", is_upper},
};

}  // namespace

const Builtin* detail::find_text_method(std::string_view name) { return find_in(kMethods, name); }

Value replace_text(Context& cx, std::string_view text, std::string_view from, std::string_view to, int64_t count) {
  std::string out;
  size_t at = 0;
  cx.budget.take(text.size());
  auto put = [&] {
    cx.budget.take(to.size());
    out += to;
  };
  for (; count != 0; --count) {
    if (from.empty()) {  // between all characters, and at both ends
      put();
      if (at == text.size()) break;
      size_t n = utf8::width(text, at);
      out += text.substr(at, n);
      at += n;
      continue;
    }
    size_t hit = find_text(text, from, at);
    if (hit == npos) break;
    cx.budget.step();
    out += text.substr(at, hit - at);
    put();
    at = hit + from.size();
  }
  out += text.substr(at);
  return cx.text(std::move(out));
}

Value join_text(Context& cx, const List& items, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < items.items.size(); ++i) {
    if (i > 0) {
      cx.budget.take(separator.size());
      out += separator;
    }
    append_text(cx, items.items[i], out);
  }
  return cx.text(std::move(out));
}

}  // namespace switchyard::jinja
