// SPDX-License-Identifier: Apache-2.0
// The interpreter: walks a Tree with one Context and one set of variables, and writes text.
#pragma once

#include <memory>
#include <string>

#include "core/text/jinja/ast.h"
#include "core/text/jinja/context.h"

namespace switchyard::jinja {

// One render. Not thread-safe; the tree and the globals must outlive it.
class Interpreter {
 public:
  Interpreter(const Tree& tree, const Value& globals, Context& cx) : tree_(tree), globals_(globals), cx_(cx) {}

  // Throws Failure; line() is then the line of the template at which it happened.
  std::string run();
  int line() const { return line_; }

 private:
  enum class Flow : uint8_t { next, leave, repeat };  // the effect of a block on the loop around it
  class Inner;

  Flow block(const Block& statements);
  Flow statement(const Statement& node);
  Flow if_statement(const Statement& node);
  Flow for_statement(const Statement& node);
  Flow with_statement(const Statement& node);
  void macro_statement(const Statement& node);
  // The text that a block writes; its variables are its own.
  std::string capture(const Block& statements);
  Value captured(const Statement& node);
  void write(const Value& value);
  void write(std::string_view text);
  void assign(const Expression& target, const Value& value);
  std::shared_ptr<const List> chosen_items(const Statement& node);

  Value evaluate(const Expression& node);
  Value name(const Expression& node);
  Value dict(const Expression& node);
  Value binary(const Expression& node);
  Value compare(const Expression& node);
  Value concat(const Expression& node);
  Value slice(const Expression& node);
  Value call(const Expression& node);
  Value call_macro(const Callable& macro, Arguments arguments);
  bool holds(std::string_view op, const Value& a, const Value& b);
  Arguments arguments(const Expression& node);
  std::vector<Value> evaluate_all(const std::vector<const Expression*>& nodes);

  const Tree& tree_;
  const Value& globals_;
  Context& cx_;
  std::string out_;
  std::shared_ptr<Scope> scope_ = std::make_shared<Scope>();
  Value captured_;
  uint64_t written_ = 0;  // bytes, into out_ or a captured block
  int line_ = 1;
};

// A scope within the current one, for as long as it lives.
class Interpreter::Inner {
 public:
  Inner(Interpreter& owner, std::shared_ptr<Scope> parent);
  ~Inner() { owner_.scope_ = std::move(outer_); }
  Inner(const Inner&) = delete;
  Inner& operator=(const Inner&) = delete;

 private:
  Interpreter& owner_;
  std::shared_ptr<Scope> outer_;
};

}  // namespace switchyard::jinja
