// SPDX-License-Identifier: Apache-2.0
// Statements. Expressions are in evaluator.cpp.
#include "core/text/jinja/interpreter.h"

#include "core/text/jinja/operators.h"
#include "core/text/jinja/python_text.h"

namespace switchyard::jinja {

Interpreter::Inner::Inner(Interpreter& owner, std::shared_ptr<Scope> parent) : owner_(owner), outer_(owner.scope_) {
  owner_.cx_.budget.take(sizeof(Scope));
  owner_.scope_ = std::make_shared<Scope>();
  owner_.scope_->parent = std::move(parent);
}

std::string Interpreter::run() {
  block(tree_.body);
  return std::move(out_);
}

void Interpreter::write(std::string_view text) {
  written_ += text.size();
  cx_.budget.output(written_);
  cx_.budget.touch(text.size());
  out_ += text;
}

void Interpreter::write(const Value& value) {
  if (value.is(Kind::string)) {
    write(value.text());
  } else if (!value.is(Kind::undefined)) {
    write(to_text(cx_, value));
  }
}

Interpreter::Flow Interpreter::block(const Block& statements) {
  Budget::Frame frame(cx_.budget);
  for (const Statement* each : statements) {
    if (Flow flow = statement(*each); flow != Flow::next) return flow;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::statement(const Statement& node) {
  line_ = node.line;
  cx_.budget.step();
  switch (node.kind) {
    case Statement::Kind::data:
      write(node.text);
      break;
    case Statement::Kind::print:
      write(evaluate(*node.expression));
      break;
    case Statement::Kind::if_:
      return if_statement(node);
    case Statement::Kind::for_:
      return for_statement(node);
    case Statement::Kind::set:
      assign(*node.target, evaluate(*node.expression));
      break;
    case Statement::Kind::set_block:
      assign(*node.target, captured(node));
      break;
    case Statement::Kind::filter_block:
      write(captured(node));
      break;
    case Statement::Kind::macro:
      macro_statement(node);
      break;
    case Statement::Kind::with:
      return with_statement(node);
    case Statement::Kind::scope: {
      Inner inner(*this, scope_);
      return block(node.body);
    }
    case Statement::Kind::break_:
      return Flow::leave;
    case Statement::Kind::continue_:
      return Flow::repeat;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::if_statement(const Statement& node) {
  for (const auto& [condition, body] : node.branches) {
    if (evaluate(*condition).truthy()) return block(body);
  }
  return block(node.otherwise);
}

// The items of a loop that pass its condition. All are tested before the first is visited.
std::shared_ptr<const List> Interpreter::chosen_items(const Statement& node) {
  auto items = iterate(cx_, evaluate(*node.expression));
  if (node.condition == nullptr) return items;
  std::vector<Value> kept;
  for (const Value& each : items->items) {
    Inner inner(*this, scope_);
    assign(*node.target, each);
    cx_.budget.take(sizeof(Value));
    if (evaluate(*node.condition).truthy()) kept.push_back(each);
  }
  return List::make(std::move(kept));
}

Interpreter::Flow Interpreter::for_statement(const Statement& node) {
  auto loop = std::make_shared<Loop>();
  loop->items = chosen_items(node);
  Value loop_value(loop);
  bool completed = false;  // as in jinja2, `else` also runs when every visit was cut short by break or continue
  for (; loop->index0 < loop->items->items.size(); ++loop->index0) {
    Inner inner(*this, scope_);
    scope_->set("loop", loop_value);
    assign(*node.target, loop->items->items[loop->index0]);
    Flow flow = block(node.body);
    if (flow == Flow::leave) break;
    completed = completed || flow == Flow::next;
  }
  if (completed || node.otherwise.empty()) return Flow::next;
  Inner inner(*this, scope_);
  return block(node.otherwise);
}

Interpreter::Flow Interpreter::with_statement(const Statement& node) {
  std::vector<Value> values;
  for (const auto& parameter : node.parameters) values.push_back(evaluate(*parameter.second));
  Inner inner(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) scope_->set(node.parameters[i].first, std::move(values[i]));
  return block(node.body);
}

void Interpreter::macro_statement(const Statement& node) {
  cx_.budget.take(sizeof(Callable));
  auto macro = std::make_shared<Callable>();
  macro->name = node.text;
  macro->macro = &node;
  macro->scope = scope_;
  cx_.keep(scope_);
  scope_->set(node.text, Value(std::shared_ptr<const Callable>(std::move(macro))));
}

std::string Interpreter::capture(const Block& statements) {
  std::string outside = std::exchange(out_, std::string());
  block(statements);
  return std::exchange(out_, std::move(outside));
}

Value Interpreter::captured(const Statement& node) {
  Value text;
  {
    Inner inner(*this, scope_);
    text = cx_.text(capture(node.body));
  }
  if (node.expression == nullptr) return text;
  captured_ = std::move(text);
  return evaluate(*node.expression);
}

void Interpreter::assign(const Expression& target, const Value& value) {
  cx_.budget.step(1 + scope_->variables.size() / 16);
  if (target.kind == Expression::Kind::name) return scope_->set(target.text, value);
  if (target.kind == Expression::Kind::attribute) {
    Value held = evaluate(*target.operands[0]);
    if (!held.is(Kind::space))
      fail("'{}' is no namespace, so '{}' cannot be set", target.operands[0]->text, target.text);
    auto& attributes = held.space().attributes;
    cx_.budget.touch(attributes.size() * 16);
    for (auto& [key, old] : attributes) {
      if (key == target.text) {
        old = value;
        return;
      }
    }
    cx_.budget.take(sizeof(attributes[0]) + target.text.size());
    attributes.emplace_back(target.text, value);
    return;
  }
  auto parts = iterate(cx_, value);
  if (parts->items.size() != target.operands.size()) {
    fail("{} values cannot be unpacked into {} names", parts->items.size(), target.operands.size());
  }
  for (size_t i = 0; i < parts->items.size(); ++i) assign(*target.operands[i], parts->items[i]);
}

}  // namespace switchyard::jinja
