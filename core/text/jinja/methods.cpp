// SPDX-License-Identifier: Apache-2.0
// Methods of dict, list, tuple and loop; and global functions.
#include <algorithm>
#include <array>

#include "core/text/jinja/builtins.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/python_text.h"

namespace switchyard::jinja {

namespace {

using Shape = List::Shape;

Value get(Call& c) {
  const Value* entry = find(c.cx, c.input.dict(), c.at(0));
  if (entry != nullptr) return *entry;
  return c.given(1) ? c.arguments[1] : Value::none();
}

Value items(Call& c) { return dict_items(c.cx, c.input.dict(), Shape::view); }

Value column(Call& c, bool keys) {
  std::vector<Value> out;
  c.cx.budget.take(c.input.dict().entries.size() * sizeof(Value));
  for (const auto& [key, value] : c.input.dict().entries) out.push_back(keys ? key : value);
  return c.cx.list(std::move(out), Shape::view);
}
Value keys(Call& c) { return column(c, true); }
Value values(Call& c) { return column(c, false); }
Value copy(Call& c) { return c.input; }

Value index(Call& c) {
  const auto& list = c.input.list().items;
  for (size_t i = 0; i < list.size(); ++i) {
    if (equal(c.cx, list[i], c.at(0))) return Value(static_cast<int64_t>(i));
  }
  fail("{} is not in the list", to_repr(c.cx, c.at(0)));
}

Value count(Call& c) {
  int64_t n = 0;
  for (const Value& each : c.input.list().items) n += equal(c.cx, each, c.at(0)) ? 1 : 0;
  return Value(n);
}

Value cycle(Call& c) {
  const auto& choices = c.rest.positional;
  if (choices.empty()) fail("loop.cycle needs at least one value");
  return choices[c.input.loop().index0 % choices.size()];
}

Value changed(Call& c) {
  Loop& loop = c.input.loop();
  Value now = c.cx.list(c.rest.positional, Shape::tuple);
  bool same = !loop.changed_last.absent() && equal(c.cx, loop.changed_last, now);
  loop.changed_last = std::move(now);
  return Value(!same);
}

constexpr Builtin kDictMethods[] = {
    {"get", "key default", get}, {"items", "", items}, {"keys", "", keys}, {"values", "", values}, {"copy", "", copy},
};
constexpr Builtin kListMethods[] = {{"index", "value", index}, {"count", "value", count}};
constexpr Builtin kLoopMethods[] = {{"cycle", "*", cycle}, {"changed", "*", changed}};
constexpr std::array<std::string_view, 7> kListChanges = {"append", "clear",  "extend", "insert",
                                                          "pop",    "remove", "sort"};
constexpr std::array<std::string_view, 5> kDictChanges = {"clear", "pop", "popitem", "setdefault", "update"};

// Functions.

Value range(Call& c) {
  int64_t start = c.given(1) ? c.integer(0, 0) : 0;
  int64_t stop = c.given(1) ? c.integer(1, 0) : c.at(0).is_integral() ? c.integer(0, 0) : 0;
  if (!c.at(0).is_integral()) fail("range needs integers, not {}", c.at(0).type_name());
  int64_t step = c.integer(2, 1);
  if (step == 0) fail("the step of range cannot be zero");
  std::vector<Value> out;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(out.size()) == c.cx.budget.limits().max_range) {
      fail("range has more than {} items", c.cx.budget.limits().max_range);
    }
    out.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return c.cx.list(std::move(out), Shape::range);
}

// dict() and namespace(): the entries of at most one mapping (or list of pairs), then named arguments.
std::vector<Value::Entry> entries_of(Call& c) {
  std::vector<Value::Entry> entries;
  if (c.rest.positional.size() > 1) fail("at most one argument goes without a name here");
  for (const Value& source : c.rest.positional) {
    if (source.is(Kind::dict)) {
      c.cx.budget.take(source.dict().entries.size() * sizeof(Value::Entry));
      entries = source.dict().entries;
      continue;
    }
    auto pairs = iterate(c.cx, source);
    for (const Value& pair : pairs->items) {
      auto parts = iterate(c.cx, pair);
      if (parts->items.size() != 2) fail("a dict is made of pairs");
      c.cx.budget.take(sizeof(Value::Entry));
      insert(c.cx, entries, parts->items[0], parts->items[1]);
    }
  }
  for (const auto& [name, value] : c.rest.named) insert(c.cx, entries, c.cx.text(name), value);
  return entries;
}

Value dict(Call& c) { return c.cx.dict(entries_of(c)); }

Value space(Call& c) {
  std::vector<std::pair<std::string, Value>> attributes;
  for (auto& [key, value] : entries_of(c)) {
    if (!key.is(Kind::string)) fail("an attribute of a namespace needs a text as its name, not {}", key.type_name());
    attributes.emplace_back(key.text(), std::move(value));
  }
  return c.cx.space(std::move(attributes));
}

Value raise_exception(Call& c) {
  throw Failure{Code::usage, "the template refuses this conversation: " + to_text(c.cx, c.at(0))};
}

Value strftime_now(Call& c) {
  const std::string& format = c.text(0);
  if (format.size() > 256 || format.find('\0') != std::string::npos)
    fail("strftime_now takes a format of at most 256 bytes");
  std::tm now = c.cx.clock();
  std::array<char, 4096> buffer;
  size_t n = std::strftime(buffer.data(), buffer.size(), format.c_str(), &now);
  return c.cx.text(std::string_view(buffer.data(), n));
}

constexpr Builtin kFunctions[] = {
    {"range", "start stop step", range},
    {"dict", "*", dict},
    {"namespace", "*", space},
    {"raise_exception", "message", raise_exception},
    {"strftime_now", "format", strftime_now},
};

}  // namespace

const Builtin* find_function(std::string_view name) { return detail::find_in(kFunctions, name); }

const Builtin* find_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::string:
      return detail::find_text_method(name);
    case Kind::dict:
      return detail::find_in(kDictMethods, name);
    case Kind::list:
      return detail::find_in(kListMethods, name);
    case Kind::loop:
      return detail::find_in(kLoopMethods, name);
    default:
      return nullptr;
  }
}

bool is_method(std::string_view name) {
  constexpr Kind kinds[] = {Kind::string, Kind::dict, Kind::list, Kind::loop};
  return std::any_of(std::begin(kinds), std::end(kinds), [&](Kind kind) { return find_method(kind, name) != nullptr; });
}

bool changes_its_receiver(Kind kind, std::string_view name) {
  auto holds = [&](const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); };
  return (kind == Kind::list && holds(kListChanges)) || (kind == Kind::dict && holds(kDictChanges));
}

Value dict_items(Context& cx, const Dict& dict, Shape shape) {
  std::vector<Value> pairs;
  for (const auto& [key, value] : dict.entries) pairs.push_back(cx.list({key, value}, Shape::tuple));
  return cx.list(std::move(pairs), shape);
}

}  // namespace switchyard::jinja
