// SPDX-License-Identifier: Apache-2.0
// Expressions.
#include "core/text/jinja/builtins.h"
#include "core/text/jinja/interpreter.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/python_text.h"

namespace switchyard::jinja {

Value Interpreter::evaluate(const Expression& node) {
  using Op = Expression::Kind;
  Budget::Frame frame(cx_.budget);
  cx_.budget.step();
  line_ = node.line;
  const auto& in = node.operands;
  switch (node.kind) {
    case Op::literal:
      return node.value;
    case Op::name:
      return name(node);
    case Op::list:
      return cx_.list(evaluate_all(in));
    case Op::tuple:
      return cx_.list(evaluate_all(in), List::Shape::tuple);
    case Op::dict:
      return dict(node);
    case Op::attribute:
      return attribute(cx_, evaluate(*in[0]), node.text);
    case Op::item: {
      Value container = evaluate(*in[0]);
      return item(cx_, container, evaluate(*in[1]));
    }
    case Op::slice:
      return slice(node);
    case Op::call:
      return call(node);
    case Op::filter:
    case Op::test: {
      Value input = evaluate(*in[0]);
      Arguments given = arguments(node);
      line_ = node.line;
      return cx_.call(*node.builtin, input, std::move(given));
    }
    case Op::negation:
      return Value(!evaluate(*in[0]).truthy());
    case Op::minus:
      return negate(evaluate(*in[0]));
    case Op::plus:
      return negate(negate(evaluate(*in[0])));
    case Op::binary:
      return binary(node);
    case Op::concat:
      return concat(node);
    case Op::compare:
      return compare(node);
    case Op::both: {
      Value left = evaluate(*in[0]);
      return left.truthy() ? evaluate(*in[1]) : left;
    }
    case Op::either: {
      Value left = evaluate(*in[0]);
      return left.truthy() ? left : evaluate(*in[1]);
    }
    case Op::choice:
      if (evaluate(*in[1]).truthy()) return evaluate(*in[0]);
      return in[2] != nullptr ? evaluate(*in[2]) : Value::undefined("the condition is false and there is no 'else'");
    case Op::captured:
      return captured_;
  }
  return Value::none();
}

std::vector<Value> Interpreter::evaluate_all(const std::vector<const Expression*>& nodes) {
  std::vector<Value> values;
  values.reserve(nodes.size());
  for (const Expression* each : nodes) values.push_back(evaluate(*each));
  return values;
}

Value Interpreter::name(const Expression& node) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    cx_.budget.step(1 + scope->variables.size() / 16);
    if (const Value* value = scope->find(node.text)) return *value;
  }
  if (globals_.is(Kind::dict)) {
    if (const Value* value = find(cx_, globals_.dict(), node.text)) return *value;
  }
  if (const Builtin* function = find_function(node.text)) return cx_.bound(*function, Value());
  return Value::undefined(fmt::format("'{}' is undefined", node.text));
}

Value Interpreter::dict(const Expression& node) {
  std::vector<Value::Entry> entries;
  for (size_t i = 0; i < node.operands.size(); i += 2) {
    Value key = evaluate(*node.operands[i]);
    insert(cx_, entries, std::move(key), evaluate(*node.operands[i + 1]));
  }
  return cx_.dict(std::move(entries));
}

Value Interpreter::slice(const Expression& node) {
  Value container = evaluate(*node.operands[0]);
  Value bounds[3] = {Value::none(), Value::none(), Value::none()};
  for (size_t i = 0; i < 3; ++i) {
    if (node.operands[i + 1] != nullptr) bounds[i] = evaluate(*node.operands[i + 1]);
  }
  return jinja::slice(cx_, container, bounds[0], bounds[1], bounds[2]);
}

Value Interpreter::binary(const Expression& node) {
  Value left = evaluate(*node.operands[0]);
  Value right = evaluate(*node.operands[1]);
  line_ = node.line;
  if (node.text == "+") return add(cx_, left, right);
  if (node.text == "*") return multiply(cx_, left, right);
  return arithmetic(node.text, left, right);
}

Value Interpreter::concat(const Expression& node) {
  std::string text;
  for (const Value& each : evaluate_all(node.operands)) append_text(cx_, each, text);
  return cx_.text(std::move(text));
}

bool Interpreter::holds(std::string_view op, const Value& a, const Value& b) {
  if (op == "==") return equal(cx_, a, b);
  if (op == "!=") return !equal(cx_, a, b);
  if (op == "<") return less(cx_, a, b);
  if (op == ">") return less(cx_, b, a);
  if (op == "<=") return at_most(cx_, a, b);
  if (op == ">=") return at_most(cx_, b, a);
  return contains(cx_, b, a) == (op == "in");
}

// a < b < c: true if every neighbouring pair holds; after a pair that does not, nothing is evaluated.
Value Interpreter::compare(const Expression& node) {
  Value left = evaluate(*node.operands[0]);
  for (size_t i = 0; i < node.texts.size(); ++i) {
    Value right = evaluate(*node.operands[i + 1]);
    line_ = node.line;
    if (!holds(node.texts[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Arguments Interpreter::arguments(const Expression& node) {
  Arguments out;
  for (size_t i = 1; i < node.operands.size(); ++i) out.positional.push_back(evaluate(*node.operands[i]));
  for (const auto& [key, value] : node.named) out.named.emplace_back(key, evaluate(*value));
  return out;
}

Value Interpreter::call(const Expression& node) {
  Value callee = evaluate(*node.operands[0]);
  if (callee.is(Kind::undefined)) fail("{}, so it cannot be called", callee.why());
  if (!callee.is(Kind::callable)) fail("a {} cannot be called", callee.type_name());
  Arguments given = arguments(node);
  line_ = node.line;
  const Callable& function = callee.callable();
  if (function.macro != nullptr) return call_macro(function, std::move(given));
  return cx_.call(*function.builtin, function.receiver, std::move(given));
}

Value Interpreter::call_macro(const Callable& macro, Arguments given) {
  const auto& parameters = macro.macro->parameters;
  if (given.positional.size() > parameters.size()) {
    fail("macro '{}' takes at most {} arguments, not {}", macro.name, parameters.size(), given.positional.size());
  }
  std::vector<Value> values = std::move(given.positional);
  values.resize(parameters.size());
  for (auto& [key, value] : given.named) {
    size_t place = 0;
    while (place < parameters.size() && parameters[place].first != key) ++place;
    if (place == parameters.size()) fail("macro '{}' has no parameter named '{}'", macro.name, key);
    if (!values[place].absent()) fail("macro '{}' got the argument '{}' twice", macro.name, key);
    values[place] = std::move(value);
  }
  Inner inner(*this, macro.scope);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [key, otherwise] = parameters[i];
    if (values[i].absent()) {
      values[i] = otherwise != nullptr ? evaluate(*otherwise)
                                       : Value::undefined(fmt::format("parameter '{}' was not provided", key));
    }
    scope_->set(key, std::move(values[i]));
  }
  return cx_.text(capture(macro.macro->body));
}

}  // namespace switchyard::jinja
