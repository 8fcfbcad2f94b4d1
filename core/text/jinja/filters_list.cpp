// SPDX-License-Identifier: Apache-2.0
// Filters on sequences and mappings.
#include <algorithm>
#include <charconv>

#include "core/text/jinja/builtins.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/python_text.h"
#include "core/text/jinja/utf8.h"

namespace switchyard::jinja {

namespace {

using Shape = List::Shape;

// jinja2's attribute getter: a path of names and indices ("a.0.b"), or one integer. A missing part becomes `otherwise`
// if that is given.
Value by_path(Context& cx, Value value, const Value& path, const Value& otherwise = Value()) {
  if (!path.is(Kind::string)) return item(cx, value, path);
  std::string_view rest = path.text();
  cx.budget.touch(rest.size());
  while (true) {
    size_t dot = rest.find('.');
    std::string_view name = rest.substr(0, dot);
    int64_t index = 0;
    auto [end, problem] = std::from_chars(name.data(), name.data() + name.size(), index);
    bool number = problem == std::errc() && end == name.data() + name.size() && index >= 0;
    value = item(cx, value, number ? Value(index) : cx.text(name));
    if (value.is(Kind::undefined) && !otherwise.absent()) value = otherwise;
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

Value fold_case(Context& cx, Value value, bool case_sensitive) {
  return value.is(Kind::string) && !case_sensitive ? cx.text(utf8::lower(value.text())) : value;
}

// The key that sort, unique, min and max compare: the attribute named by argument `i`, or the value itself, ignoring
// case.
Value key_of(Call& c, const Value& value, size_t i, bool case_sensitive) {
  bool path = c.given(i) && !c.arguments[i].is(Kind::none);
  return fold_case(c.cx, path ? by_path(c.cx, value, c.arguments[i]) : value, case_sensitive);
}

Value length_filter(Call& c) { return Value(length(c.input)); }

Value list_filter(Call& c) { return c.cx.list(iterate(c.cx, c.input)->items); }

Value items_filter(Call& c) {
  if (c.input.is(Kind::undefined)) return c.cx.list({}, Shape::lazy);
  if (!c.input.is(Kind::dict)) fail("items needs a mapping, not {}", c.input.type_name());
  return dict_items(c.cx, c.input.dict(), Shape::lazy);
}

Value join_filter(Call& c) {
  auto items = iterate(c.cx, c.input);
  if (c.given(1) && !c.arguments[1].is(Kind::none)) {
    std::vector<Value> picked;
    for (const Value& each : items->items) {
      c.cx.budget.take(sizeof(Value));
      picked.push_back(by_path(c.cx, each, c.arguments[1]));
    }
    items = List::make(std::move(picked));
  }
  return join_text(c.cx, *items, c.given(0) ? to_text(c.cx, c.arguments[0]) : "");
}

Value first(Call& c) {
  if (c.input.is(Kind::list) && c.input.list().shape == Shape::lazy) {
    const List& list = c.input.list();
    if (list.taken < list.items.size()) return list.items[list.taken++];
    return Value::undefined("the sequence has no first item, it is empty");
  }
  auto items = iterate(c.cx, c.input);
  return items->items.empty() ? Value::undefined("the sequence has no first item, it is empty") : items->items.front();
}

Value last(Call& c) {
  if (c.input.is(Kind::list) && c.input.list().shape == Shape::lazy) fail("a generator has no last item; add '| list'");
  auto items = iterate(c.cx, c.input);
  return items->items.empty() ? Value::undefined("the sequence has no last item, it is empty") : items->items.back();
}

Value reverse(Call& c) {
  if (c.input.is(Kind::string)) return slice(c.cx, c.input, Value::none(), Value::none(), Value(int64_t{-1}));
  auto items = iterate(c.cx, c.input);
  c.cx.budget.take(items->items.size() * sizeof(Value));
  return c.cx.list(std::vector<Value>(items->items.rbegin(), items->items.rend()), Shape::lazy);
}

// `keys[i]` decides the place of `items[i]`; stable, also when reversed, as Python's sorted.
std::vector<Value> sorted(Context& cx, const std::vector<Value>& items, const std::vector<Value>& keys, bool reversed) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reversed ? less(cx, keys[b], keys[a]) : less(cx, keys[a], keys[b]);
  });
  std::vector<Value> out;
  out.reserve(items.size());
  for (size_t i : order) out.push_back(items[i]);
  return out;
}

Value sort(Call& c) {
  auto items = iterate(c.cx, c.input);
  bool sensitive = c.flag(1, false);
  bool several = c.given(2) && c.arguments[2].is(Kind::string) && c.text(2).find(',') != std::string::npos;
  c.cx.budget.take(items->items.size() * (2 * sizeof(Value) + sizeof(size_t)));
  std::vector<Value> keys;
  for (const Value& each : items->items) {
    if (!several) {
      keys.push_back(key_of(c, each, 2, sensitive));
      continue;
    }
    std::vector<Value> parts;
    std::string_view rest = c.text(2);
    for (size_t comma = 0; comma != std::string_view::npos; rest.remove_prefix(std::min(comma + 1, rest.size()))) {
      comma = rest.find(',');
      parts.push_back(fold_case(c.cx, by_path(c.cx, each, c.cx.text(rest.substr(0, comma))), sensitive));
      if (comma == std::string_view::npos) break;
    }
    keys.push_back(c.cx.list(std::move(parts)));
  }
  return c.cx.list(sorted(c.cx, items->items, keys, c.flag(0, false)));
}

Value dict_sort(Call& c) {
  if (!c.input.is(Kind::dict)) fail("dictsort needs a mapping, not {}", c.input.type_name());
  std::string_view by = "key";
  if (c.given(1)) by = c.text(1);
  if (by != "key" && by != "value") fail("dictsort sorts by 'key' or 'value', not '{}'", by);
  auto items = dict_items(c.cx, c.input.dict(), Shape::list);
  std::vector<Value> keys;
  for (const auto& [key, value] : c.input.dict().entries) {
    keys.push_back(fold_case(c.cx, by == "key" ? key : value, c.flag(0, false)));
  }
  return c.cx.list(sorted(c.cx, items.list().items, keys, c.flag(2, false)));
}

Value unique(Call& c) {
  auto items = iterate(c.cx, c.input);
  std::vector<Value> kept;
  std::vector<Value> seen;
  for (const Value& each : items->items) {
    Value key = key_of(c, each, 1, c.flag(0, false));
    if (key.is(Kind::dict) || (key.is(Kind::list) && key.list().shape != Shape::tuple)) {
      fail("unique cannot compare a {}; name an attribute of it", key.type_name());
    }
    bool known = std::any_of(seen.begin(), seen.end(), [&](const Value& old) { return equal(c.cx, old, key); });
    if (known) continue;
    c.cx.budget.take(2 * sizeof(Value));
    seen.push_back(std::move(key));
    kept.push_back(each);
  }
  return c.cx.list(std::move(kept), Shape::lazy);
}

Value extreme(Call& c, bool largest) {
  auto items = iterate(c.cx, c.input);
  if (items->items.empty()) return Value::undefined("the sequence has no smallest or largest item, it is empty");
  const Value* best = &items->items.front();
  Value best_key = key_of(c, *best, 1, c.flag(0, false));
  for (size_t i = 1; i < items->items.size(); ++i) {
    Value key = key_of(c, items->items[i], 1, c.flag(0, false));
    if (largest ? less(c.cx, best_key, key) : less(c.cx, key, best_key)) {
      best = &items->items[i];
      best_key = std::move(key);
    }
  }
  return *best;
}
Value min(Call& c) { return extreme(c, false); }
Value max(Call& c) { return extreme(c, true); }

Value sum(Call& c) {
  Value total = c.given(1) ? c.arguments[1] : Value(int64_t{0});
  if (total.is(Kind::string)) fail("sum does not add texts; use join");
  bool path = c.given(0) && !c.arguments[0].is(Kind::none);
  auto items = iterate(c.cx, c.input);
  for (const Value& each : items->items) total = add(c.cx, total, path ? by_path(c.cx, each, c.arguments[0]) : each);
  return total;
}

Value map(Call& c) {
  auto items = iterate(c.cx, c.input);
  Value path, otherwise;
  const Builtin* filter = nullptr;
  Arguments arguments = c.rest;
  if (arguments.positional.empty()) {
    for (const auto& [name, value] : arguments.named) {
      if (name != "attribute" && name != "default") fail("'map' has no argument named '{}'", name);
      (name == "attribute" ? path : otherwise) = value;
    }
    if (path.absent()) fail("map needs the name of a filter, or attribute=...");
    if (otherwise.is(Kind::none)) otherwise = Value();
  } else {
    const Value& name = arguments.positional[0];
    filter = name.is(Kind::string) ? find_filter(name.text()) : nullptr;
    if (filter == nullptr) fail("map needs the name of a known filter, not {}", to_repr(c.cx, name));
    arguments.positional.erase(arguments.positional.begin());
  }
  Budget::Frame frame(c.cx.budget);
  std::vector<Value> out;
  for (const Value& each : items->items) {
    c.cx.budget.take(sizeof(Value));
    out.push_back(filter != nullptr ? c.cx.call(*filter, each, arguments) : by_path(c.cx, each, path, otherwise));
  }
  return c.cx.list(std::move(out), Shape::lazy);
}

// select, reject and their attr forms: keep the items whose test returns `wanted`.
Value choose(Call& c, bool attribute, bool wanted) {
  Arguments arguments = c.rest;
  auto next = [&] {
    Value value = arguments.positional.front();
    arguments.positional.erase(arguments.positional.begin());
    return value;
  };
  if (!c.input.truthy()) return c.cx.list({}, Shape::lazy);
  if (attribute && arguments.positional.empty()) fail("the name of an attribute is missing");
  Value path = attribute ? next() : Value();
  const Builtin* test = nullptr;
  if (!arguments.positional.empty()) {
    Value name = next();
    test = name.is(Kind::string) ? find_test(name.text()) : nullptr;
    if (test == nullptr) fail("the name of a known test is needed, not {}", to_repr(c.cx, name));
  }
  auto items = iterate(c.cx, c.input);
  Budget::Frame frame(c.cx.budget);
  std::vector<Value> kept;
  for (const Value& each : items->items) {
    Value tested = attribute ? by_path(c.cx, each, path) : each;
    bool passes = test != nullptr ? c.cx.call(*test, tested, arguments).truthy() : tested.truthy();
    c.cx.budget.take(sizeof(Value));
    if (passes == wanted) kept.push_back(each);
  }
  return c.cx.list(std::move(kept), Shape::lazy);
}
Value select(Call& c) { return choose(c, false, true); }
Value reject(Call& c) { return choose(c, false, false); }
Value select_attr(Call& c) { return choose(c, true, true); }
Value reject_attr(Call& c) { return choose(c, true, false); }

constexpr Builtin kListFilters[] = {
    {"length", "", length_filter},
    {"count", "", length_filter},
    {"list", "", list_filter},
    {"items", "", items_filter},
    {"join", "d attribute", join_filter},
    {"first", "", first},
    {"last", "", last},
    {"reverse", "", reverse},
    {"sort", "reverse case_sensitive attribute", sort},
    {"dictsort", "case_sensitive by reverse", dict_sort},
    {"unique", "case_sensitive attribute", unique},
    {"min", "case_sensitive attribute", min},
    {"max", "case_sensitive attribute", max},
    {"sum", "attribute start", sum},
    {"map", "*", map},
    {"select", "*", select},
    {"reject", "*", reject},
    {"selectattr", "*", select_attr},
    {"rejectattr", "*", reject_attr},
};

}  // namespace

const Builtin* detail::find_list_filter(std::string_view name) { return find_in(kListFilters, name); }

}  // namespace switchyard::jinja
