// SPDX-License-Identifier: Apache-2.0
#include "core/text/jinja/context.h"

#include <algorithm>

namespace switchyard::jinja {

namespace {

// The words of `parameters`.
std::vector<std::string_view> words(std::string_view parameters) {
  std::vector<std::string_view> names;
  while (!parameters.empty()) {
    size_t end = std::min(parameters.find(' '), parameters.size());
    names.push_back(parameters.substr(0, end));
    parameters.remove_prefix(std::min(end + 1, parameters.size()));
  }
  return names;
}

}  // namespace

const Value* Scope::find(std::string_view name) const {
  for (const auto& [key, value] : variables) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, old] : variables) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

const Value& Call::at(size_t i) const {
  if (!given(i)) fail("argument {} is missing", i + 1);
  return arguments[i];
}

int64_t Call::integer(size_t i, int64_t otherwise) const {
  if (!given(i)) return otherwise;
  if (!arguments[i].is_integral()) fail("argument {} must be an integer, not {}", i + 1, arguments[i].type_name());
  return arguments[i].integer();
}

bool Call::flag(size_t i, bool otherwise) const { return given(i) ? arguments[i].truthy() : otherwise; }

const std::string& Call::text(size_t i) const {
  if (!at(i).is(Kind::string)) fail("argument {} must be a str, not {}", i + 1, at(i).type_name());
  return at(i).text();
}

Context::~Context() {
  for (auto& space : spaces_) space->attributes.clear();
  for (auto& scope : scopes_) scope->variables.clear();
}

Value Context::text(std::string text) {
  budget.take(text.size() + sizeof(std::string));
  return Value(std::move(text));
}

Value Context::list(std::vector<Value> items, List::Shape shape) {
  budget.take(items.size() * sizeof(Value) + sizeof(List));
  return Value(List::make(std::move(items), shape));
}

Value Context::dict(std::vector<Value::Entry> entries) {
  budget.take(entries.size() * sizeof(Value::Entry) + sizeof(Dict));
  return Value(Dict::make(std::move(entries)));
}

Value Context::space(std::vector<std::pair<std::string, Value>> attributes) {
  budget.take(sizeof(Namespace) + attributes.size() * sizeof(attributes[0]));
  spaces_.push_back(std::make_shared<Namespace>(Namespace{std::move(attributes)}));
  return Value(spaces_.back());
}

Value Context::bound(const Builtin& builtin, const Value& receiver) {
  budget.take(sizeof(Callable));
  auto callable = std::make_shared<Callable>();
  callable->name = builtin.name;
  callable->builtin = &builtin;
  callable->receiver = receiver;
  callable->depth = receiver.depth() + 1;
  return Value(std::shared_ptr<const Callable>(std::move(callable)));
}

Value Context::call(const Builtin& builtin, const Value& input, Arguments arguments) {
  budget.step();
  Call call{*this, input, {}, {}};
  if (builtin.parameters == "*") {
    call.rest = std::move(arguments);
    return builtin.run(call);
  }
  std::vector<std::string_view> names = words(builtin.parameters);
  if (arguments.positional.size() > names.size()) {
    fail("'{}' takes at most {} arguments, not {}", builtin.name, names.size(), arguments.positional.size());
  }
  call.arguments = std::move(arguments.positional);
  call.arguments.resize(names.size());
  for (auto& [name, value] : arguments.named) {
    auto place = std::find(names.begin(), names.end(), name);
    if (place == names.end()) fail("'{}' has no argument named '{}'", builtin.name, name);
    Value& slot = call.arguments[static_cast<size_t>(place - names.begin())];
    if (!slot.absent()) fail("'{}' got the argument '{}' twice", builtin.name, name);
    slot = std::move(value);
  }
  return builtin.run(call);
}

}  // namespace switchyard::jinja
