// SPDX-License-Identifier: Apache-2.0
// Looking into values: membership, length, iteration, attributes, items and slices.
#include <cstring>

#include "core/text/jinja/builtins.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/utf8.h"

namespace switchyard::jinja {

namespace {

Value missing(const Value& value, std::string_view name) {
  return Value::undefined(fmt::format("a {} has no attribute or item '{}'", value.type_name(), name));
}

[[noreturn]] void look_into_undefined(const Value& value, std::string_view name) {
  fail("{}, so '{}' cannot be taken from it", value.why(), name);
}

Value loop_attribute(Context& cx, const Value& value, std::string_view name) {
  const Loop& loop = value.loop();
  const auto& items = loop.items->items;
  auto integer = [](size_t n) { return Value(static_cast<int64_t>(n)); };
  if (name == "index") return integer(loop.index0 + 1);
  if (name == "index0") return integer(loop.index0);
  if (name == "first") return Value(loop.index0 == 0);
  if (name == "last") return Value(loop.index0 + 1 == items.size());
  if (name == "length") return integer(items.size());
  if (name == "revindex") return integer(items.size() - loop.index0);
  if (name == "revindex0") return integer(items.size() - loop.index0 - 1);
  if (name == "depth") return integer(1);
  if (name == "depth0") return integer(0);
  if (name == "previtem") return loop.index0 == 0 ? missing(value, name) : items[loop.index0 - 1];
  if (name == "nextitem") return loop.index0 + 1 == items.size() ? missing(value, name) : items[loop.index0 + 1];
  const Builtin* method = find_method(Kind::loop, name);
  return method != nullptr ? cx.bound(*method, value) : missing(value, name);
}

// The bound method, or absent.
Value method_of(Context& cx, const Value& value, std::string_view name) {
  const Builtin* method = find_method(value.kind(), name);
  if (method == nullptr || (value.is(Kind::list) && value.list().shape > List::Shape::tuple)) return Value();
  return cx.bound(*method, value);
}

// The item at `index`, counted from the end when negative; or undefined.
Value at_index(Context& cx, const Value& value, int64_t index) {
  bool text = value.is(Kind::string);
  if (text) cx.budget.touch(value.text().size());
  int64_t size =
      text ? static_cast<int64_t>(utf8::length(value.text())) : static_cast<int64_t>(value.list().items.size());
  if (index < 0) index += size;
  if (index < 0 || index >= size) {
    return Value::undefined(fmt::format("a {} of length {} has no such index", value.type_name(), size));
  }
  if (!text) return value.list().items[static_cast<size_t>(index)];
  size_t at = 0;
  for (int64_t i = 0; i < index; ++i) at += utf8::width(value.text(), at);
  return cx.text(std::string_view(value.text()).substr(at, utf8::width(value.text(), at)));
}

bool indexable(const Value& value) {
  return value.is(Kind::string) || (value.is(Kind::list) && value.list().indexable());
}

bool hashable(const Value& key) {
  if (key.is(Kind::dict) || key.is(Kind::loop)) return false;
  if (!key.is(Kind::list)) return true;
  if (key.list().shape != List::Shape::tuple) return false;
  for (const Value& item : key.list().items) {
    if (!hashable(item)) return false;
  }
  return true;
}

int64_t bound_of(const Value& bound, int64_t otherwise) {
  if (bound.is(Kind::none)) return otherwise;
  if (!bound.is_integral()) fail("a slice needs integers, not {}", bound.type_name());
  return bound.integer();
}

// As Python's slice.indices: `bound` made an index into `size` items, for a walk in the direction of `step`.
int64_t clamp(int64_t bound, int64_t size, int64_t step) {
  if (bound < 0) bound += size;
  if (bound < 0) return step < 0 ? -1 : 0;
  if (bound >= size) return step < 0 ? size - 1 : size;
  return bound;
}

}  // namespace

bool contains(Context& cx, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::string: {
      if (!item.is(Kind::string)) fail("'in' a str needs a str, not {}", item.type_name());
      const std::string& text = container.text();
      cx.budget.touch(text.size());
      // memmem is linear; string::find is quadratic on hostile text.
      return memmem(text.data(), text.size(), item.text().data(), item.text().size()) != nullptr;
    }
    case Kind::dict:
      if (!hashable(item)) fail("a {} cannot be a key", item.type_name());
      return find(cx, container.dict(), item) != nullptr;
    case Kind::list:
    case Kind::undefined: {
      auto items = iterate(cx, container);
      for (const Value& each : items->items) {
        if (equal(cx, each, item)) return true;
      }
      return false;
    }
    default:
      fail("'in' does not work on {}", container.type_name());
  }
}

int64_t length(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::string:
      return static_cast<int64_t>(utf8::length(value.text()));
    case Kind::dict:
      return static_cast<int64_t>(value.dict().entries.size());
    case Kind::list:
      if (value.list().shape != List::Shape::lazy) return static_cast<int64_t>(value.list().items.size());
      fail("a generator has no length; add '| list' before '| length'");
    default:
      fail("a {} has no length", value.type_name());
  }
}

std::shared_ptr<const List> iterate(Context& cx, const Value& value) {
  cx.budget.step();
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::undefined:
      break;
    case Kind::list: {
      const List& list = value.list();
      if (list.shape != List::Shape::lazy) return value.shared_list();
      items.assign(list.items.begin() + static_cast<ptrdiff_t>(list.taken), list.items.end());
      list.taken = list.items.size();
      break;
    }
    case Kind::dict:
      cx.budget.take(value.dict().entries.size() * sizeof(Value));
      for (const auto& entry : value.dict().entries) items.push_back(entry.first);
      break;
    case Kind::string: {
      std::string_view text = value.text();
      cx.budget.take(text.size() * (sizeof(Value) + sizeof(std::string)));
      for (size_t at = 0; at < text.size(); at += utf8::width(text, at)) {
        items.emplace_back(std::string(text.substr(at, utf8::width(text, at))));
      }
      break;
    }
    default:
      fail("a {} cannot be iterated", value.type_name());
  }
  cx.budget.take(items.size() * sizeof(Value) + sizeof(List));
  return List::make(std::move(items));
}

Value attribute(Context& cx, const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::undefined:
      look_into_undefined(value, name);
    case Kind::loop:
      return loop_attribute(cx, value, name);
    case Kind::space:
      cx.budget.touch(value.space().attributes.size() * 16);
      for (const auto& [key, held] : value.space().attributes) {
        if (key == name) return held;
      }
      return missing(value, name);
    default:
      break;
  }
  if (Value method = method_of(cx, value, name); !method.absent()) return method;
  if (changes_its_receiver(value.kind(), name)) return missing(value, name);
  const Value* entry = value.is(Kind::dict) ? find(cx, value.dict(), name) : nullptr;
  return entry != nullptr ? *entry : missing(value, name);
}

Value item(Context& cx, const Value& value, const Value& index) {
  if (value.is(Kind::undefined)) look_into_undefined(value, index.is(Kind::string) ? index.text() : "an item");
  if (value.is(Kind::dict)) {
    if (const Value* entry = hashable(index) ? find(cx, value.dict(), index) : nullptr) return *entry;
  }
  if (indexable(value) && index.is_integral()) return at_index(cx, value, index.integer());
  if (!index.is(Kind::string)) return Value::undefined(fmt::format("a {} has no such item", value.type_name()));
  return value.is(Kind::dict) ? [&] {
    Value method = method_of(cx, value, index.text());
    return method.absent() ? missing(value, index.text()) : method;
  }() : attribute(cx, value, index.text());
}

Value slice(Context& cx, const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (value.is(Kind::undefined)) look_into_undefined(value, "a slice");
  if (!indexable(value)) return Value::undefined(fmt::format("a {} cannot be sliced", value.type_name()));
  int64_t stride = bound_of(step, 1);
  if (stride == 0) fail("the step of a slice cannot be zero");
  auto items = value.is(Kind::string) ? nullptr : value.shared_list();
  cx.budget.touch(items == nullptr ? value.text().size() : 0);
  int64_t size = length(value);
  int64_t from = clamp(bound_of(start, stride > 0 ? 0 : size), size, stride);
  int64_t to = stop.is(Kind::none) && stride < 0 ? -1 : clamp(bound_of(stop, size), size, stride);
  if (items == nullptr && stride != 1) items = iterate(cx, value);

  if (items == nullptr) {
    std::string_view text = value.text();
    size_t begin = 0;
    for (int64_t i = 0; i < from; ++i) begin += utf8::width(text, begin);
    size_t end = begin;
    for (int64_t i = from; i < to; ++i) end += utf8::width(text, end);
    return cx.text(text.substr(begin, end - begin));
  }
  std::vector<Value> picked;
  for (int64_t i = from; stride > 0 ? i < to : i > to;) {
    cx.budget.take(sizeof(Value));
    picked.push_back(items->items[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, stride, &i)) break;
  }
  if (!value.is(Kind::string)) return cx.list(std::move(picked), items->shape);
  std::string text;
  for (const Value& character : picked) text += character.text();
  return cx.text(std::move(text));
}

const Value* find(Context& cx, const Dict& dict, std::string_view key) {
  cx.budget.touch(dict.entries.size() * 4);
  for (const auto& [name, value] : dict.entries) {
    if (name.is(Kind::string) && name.text() == key) return &value;
  }
  return nullptr;
}

const Value* find(Context& cx, const Dict& dict, const Value& key) {
  if (key.is(Kind::string)) return find(cx, dict, key.text());
  for (const auto& [name, value] : dict.entries) {
    if (equal(cx, name, key)) return &value;
  }
  return nullptr;
}

void insert(Context& cx, std::vector<Value::Entry>& entries, Value key, Value value) {
  if (!hashable(key)) fail("a {} cannot be a key", key.type_name());
  cx.budget.touch(entries.size() * 4);
  for (auto& [name, old] : entries) {
    bool same = key.is(Kind::string) ? name.is(Kind::string) && name.text() == key.text() : equal(cx, name, key);
    if (same) {
      old = std::move(value);
      return;
    }
  }
  entries.emplace_back(std::move(key), std::move(value));
}

}  // namespace switchyard::jinja
