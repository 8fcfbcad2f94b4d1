// SPDX-License-Identifier: Apache-2.0
// Value: the values of a template, after Python's data model.
//
// Strings, lists and dicts never change once made (jinja2's sandbox forbids changing them, too), so copies share them.
// Only a namespace and a loop change, and both live within one render. Every container knows its depth, limited to
// kMaxValueDepth, so that walking or destroying one cannot exhaust the stack. Values made by one render stay on its
// thread; a Value from JSON may be read by many.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/base/status.h"

namespace switchyard::jinja {

struct List;
struct Dict;
struct Namespace;
struct Loop;
struct Callable;

enum class Kind : uint8_t { undefined, none, boolean, integer, real, string, list, dict, space, loop, callable };

class Value {
 public:
  using Entry = std::pair<Value, Value>;

  Value() = default;  // undefined, and `absent`: no template can name it
  explicit Value(bool value) : data_(value) {}
  explicit Value(int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  explicit Value(std::shared_ptr<const List> list) : data_(std::move(list)) {}
  explicit Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  explicit Value(std::shared_ptr<Namespace> space) : data_(std::move(space)) {}
  explicit Value(std::shared_ptr<Loop> loop) : data_(std::move(loop)) {}
  explicit Value(std::shared_ptr<const Callable> callable) : data_(std::move(callable)) {}
  static Value none();
  // `why` is the message of operations that need a value.
  static Value undefined(std::string why);

  // Errors: invalid_data for nesting beyond kMaxValueDepth, text that is not UTF-8, an integer beyond 64 bits.
  static Result<Value> from_json(const nlohmann::ordered_json& json);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is(Kind kind) const { return this->kind() == kind; }
  bool is_number() const { return is(Kind::boolean) || is(Kind::integer) || is(Kind::real); }
  bool is_integral() const { return is(Kind::boolean) || is(Kind::integer); }
  bool absent() const { return is(Kind::undefined) && why_() == nullptr; }

  // Each needs the matching kind; integer() and real() also take what Python would promote.
  bool boolean() const { return std::get<bool>(data_); }
  int64_t integer() const { return is(Kind::boolean) ? boolean() : std::get<int64_t>(data_); }
  double real() const { return is(Kind::real) ? std::get<double>(data_) : static_cast<double>(integer()); }
  const std::string& text() const { return *std::get<std::shared_ptr<const std::string>>(data_); }
  const List& list() const { return *shared_list(); }
  const std::shared_ptr<const List>& shared_list() const { return std::get<std::shared_ptr<const List>>(data_); }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Namespace& space() const { return *std::get<std::shared_ptr<Namespace>>(data_); }
  Loop& loop() const { return *std::get<std::shared_ptr<Loop>>(data_); }
  const Callable& callable() const { return *std::get<std::shared_ptr<const Callable>>(data_); }
  std::string why() const { return why_() != nullptr ? why_()->text : "a value is undefined"; }

  // 0 for a scalar; a container, one more than its deepest item.
  int depth() const;
  // Python's name of the type, as error messages print it.
  std::string_view type_name() const;
  // Truth by Python's rules.
  bool truthy() const;

 private:
  struct Why {
    std::string text;
  };
  const Why* why_() const { return std::get<std::shared_ptr<const Why>>(data_).get(); }

  // In the order of Kind.
  std::variant<std::shared_ptr<const Why>, std::nullptr_t, bool, int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
               std::shared_ptr<Loop>, std::shared_ptr<const Callable>>
      data_;
};

// Everything that Python iterates in order. A `view` (dict.items()) has a length but no index; a `lazy` one (the result
// of map or select) has neither, is always true, and can be read once.
struct List {
  enum class Shape : uint8_t { list, tuple, range, view, lazy };

  static std::shared_ptr<const List> make(std::vector<Value> items, Shape shape = Shape::list);
  bool indexable() const { return shape <= Shape::range; }

  std::vector<Value> items;
  Shape shape = Shape::list;
  int depth = 1;
  mutable size_t taken = 0;  // of a lazy list
};

// Keys keep the order in which they came. Keys are scalars or tuples.
struct Dict {
  static std::shared_ptr<const Dict> make(std::vector<Value::Entry> entries);

  std::vector<Value::Entry> entries;
  int depth = 1;
};

// namespace(): the only kind of value whose attributes a template may set.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

// The `loop` variable of a for statement.
struct Loop {
  std::shared_ptr<const List> items;
  size_t index0 = 0;
  Value changed_last;  // what loop.changed() last saw
};

}  // namespace switchyard::jinja
