// SPDX-License-Identifier: Apache-2.0
// The parser: tokens to a Tree. Every filter, test, function and method is looked up here, so that a template that
// needs something this interpreter lacks is refused before it is ever rendered.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/jinja/ast.h"
#include "core/text/jinja/budget.h"
#include "core/text/jinja/lexer.h"

namespace switchyard::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // Throws Failure ("line N: ...").
  Tree parse();

 private:
  class Nested;

  // Tokens.
  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  bool is_op(std::string_view op) const { return now().type == Token::Type::op && now().text == op; }
  bool is_name(std::string_view name) const { return now().type == Token::Type::name && now().text == name; }
  bool skip_op(std::string_view op) { return is_op(op) && (++at_, true); }
  bool skip_name(std::string_view name) { return is_name(name) && (++at_, true); }
  void expect_op(std::string_view op);
  std::string expect_name(std::string_view what);
  void end_block();
  template <class... Args>
  [[noreturn]] void problem(Code code, int line, fmt::format_string<Args...> format, Args&&... args) const;
  [[noreturn]] void unexpected(std::string_view wanted) const;

  // Statements.
  Block block(std::initializer_list<std::string_view> ends, std::string_view opened_by, int line);
  const Statement* statement();
  Statement& make(Statement::Kind kind, int line);
  const Statement* if_statement(int line);
  const Statement* for_statement(int line);
  const Statement* set_statement(int line);
  const Statement* macro_statement(int line);
  const Statement* with_statement(int line);
  const Statement* loop_control(int line, bool leave);
  const Expression* target(bool allow_attribute);
  const Expression* single_target(bool allow_attribute);

  // Expressions, from the loosest binding to the tightest.
  Expression& make(Expression::Kind kind, int line, std::vector<const Expression*> operands = {});
  const Expression* tuple(bool with_choice, bool in_parentheses);
  const Expression* expression(bool with_choice = true);
  const Expression* either();
  const Expression* both();
  const Expression* negation();
  const Expression* compare();
  const Expression* sum();
  const Expression* concat();
  const Expression* product();
  const Expression* power();
  const Expression* unary(bool with_filters);
  const Expression* primary();
  const Expression* list();
  const Expression* dict();
  const Expression* postfix(const Expression* node);
  const Expression* subscript(const Expression* node);
  const Expression* filters(const Expression* node, bool only_filters);
  const Expression* filter(const Expression* node);
  const Expression* test(const Expression* node);
  const Expression* call(const Expression* node);
  void arguments(Expression& node);
  void check_name_arguments(const Expression& node) const;
  bool ends_tuple() const;
  void check_calls() const;

  Tree tree_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;                                // for statements around this place, within the macro
  std::set<std::string, std::less<>> assigned_;  // every name that the template gives a value
  std::vector<std::pair<std::string, int>> called_;
};

// One more level of nesting, for as long as it lives.
class Parser::Nested {
 public:
  explicit Nested(Parser& parser);
  ~Nested() { --parser_.depth_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  Parser& parser_;
};

template <class... Args>
void Parser::problem(Code code, int line, fmt::format_string<Args...> format, Args&&... args) const {
  throw Failure{code, fmt::format("line {}: {}", line, fmt::format(format, std::forward<Args>(args)...))};
}

}  // namespace switchyard::jinja
