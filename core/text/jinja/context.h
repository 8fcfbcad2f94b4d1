// SPDX-License-Identifier: Apache-2.0
// Context: what every part of a render shares; and callables, which need it.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/jinja/budget.h"
#include "core/text/jinja/value.h"

namespace switchyard::jinja {

struct Statement;
class Context;

// The local time that strftime_now() prints.
using Clock = std::function<std::tm()>;

// The variables of one block; others are looked up in `parent`.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string_view, Value>> variables;  // names belong to the template

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

// The arguments of a call as written: by position, then by name.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

// One call of a builtin. `input` is the filtered or tested value, or the receiver of a method; `arguments` has been
// laid out by parameter (see Builtin::parameters), and one that was not given is `absent`.
struct Call {
  Context& cx;
  const Value& input;
  std::vector<Value> arguments;
  Arguments rest;  // further arguments of a variadic builtin

  bool given(size_t i) const { return i < arguments.size() && !arguments[i].absent(); }
  const Value& at(size_t i) const;  // fails when it was not given
  int64_t integer(size_t i, int64_t otherwise) const;
  bool flag(size_t i, bool otherwise) const;
  const std::string& text(size_t i) const;
};

// A filter, test, method or function that is part of the language.
struct Builtin {
  std::string_view name;
  std::string_view parameters;  // names in order, separated by spaces; "*" takes any arguments, into Call::rest
  Value (*run)(Call&);
};

struct Callable {
  std::string_view name;
  const Builtin* builtin = nullptr;  // with `receiver`; or
  Value receiver;
  const Statement* macro = nullptr;  // with the scope in which it was defined
  std::shared_ptr<Scope> scope;
  int depth = 1;
};

class Context {
 public:
  Context(const Limits& limits, Clock now) : budget(limits), clock(std::move(now)) {}
  // Namespaces and captured scopes can refer to each other in a circle; emptying them here breaks it.
  ~Context();

  // Values whose memory is charged.
  Value text(std::string text);
  Value text(std::string_view text) { return this->text(std::string(text)); }
  Value list(std::vector<Value> items, List::Shape shape = List::Shape::list);
  Value dict(std::vector<Value::Entry> entries);
  Value space(std::vector<std::pair<std::string, Value>> attributes);
  Value bound(const Builtin& builtin, const Value& receiver);
  // Keeps a scope that a macro captured until the end of the render.
  void keep(std::shared_ptr<Scope> scope) { scopes_.push_back(std::move(scope)); }

  Value call(const Builtin& builtin, const Value& input, Arguments arguments);

  Budget budget;
  Clock clock;

 private:
  std::vector<std::shared_ptr<Namespace>> spaces_;
  std::vector<std::shared_ptr<Scope>> scopes_;
};

}  // namespace switchyard::jinja
