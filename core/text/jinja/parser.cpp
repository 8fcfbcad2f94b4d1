// SPDX-License-Identifier: Apache-2.0
// Statements. Expressions are in parser_expressions.cpp.
#include "core/text/jinja/parser.h"

#include <algorithm>

#include "core/text/jinja/builtins.h"

namespace switchyard::jinja {

using Type = Token::Type;

Parser::Nested::Nested(Parser& parser) : parser_(parser) {
  if (++parser_.depth_ > kMaxParseDepth) {
    --parser_.depth_;
    parser_.problem(Code::unsupported, parser_.now().line, "the template nests deeper than {} levels", kMaxParseDepth);
  }
}

void Parser::unexpected(std::string_view wanted) const {
  const Token& token = now();
  std::string got = token.type == Type::end           ? "the end of the template"
                    : token.type == Type::data        ? "text"
                    : token.type == Type::block_begin ? "'{%'"
                    : token.type == Type::print_begin ? "'{{'"
                                                      : fmt::format("'{}'", token.text.substr(0, 40));
  problem(Code::invalid_data, token.line, "{} is expected here, not {}", wanted, got);
}

void Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) unexpected(fmt::format("'{}'", op));
}

std::string Parser::expect_name(std::string_view what) {
  if (now().type != Type::name) unexpected(what);
  return tokens_[at_++].text;
}

void Parser::end_block() {
  if (now().type != Type::block_end) unexpected("'%}'");
  ++at_;
}

Statement& Parser::make(Statement::Kind kind, int line) {
  Statement& node = tree_.statements.emplace_back();
  node.kind = kind;
  node.line = line;
  return node;
}

Tree Parser::parse() {
  tree_.body = block({}, "", 1);
  check_calls();
  return std::move(tree_);
}

void Parser::check_calls() const {
  for (const auto& [name, line] : called_) {
    if (assigned_.count(name) == 0 && find_function(name) == nullptr) {
      problem(
          Code::unsupported, line,
          "unknown function '{}'; define it as a macro, or use range, dict, namespace, raise_exception or strftime_now",
          name);
    }
  }
}

// Everything up to the block tag whose name is in `ends`, which the caller parses (after its '{%'); or up to the end of
// the template if `ends` is empty.
Block Parser::block(std::initializer_list<std::string_view> ends, std::string_view opened_by, int line) {
  Nested nested(*this);
  Block out;
  while (true) {
    const Token& token = now();
    if (token.type == Type::end) {
      if (ends.size() == 0) return out;
      problem(Code::invalid_data, line, "'{}' is never closed; add '{{% {} %}}'", opened_by, *(ends.end() - 1));
    } else if (token.type == Type::data) {
      Statement& node = make(Statement::Kind::data, token.line);
      node.text = token.text;
      out.push_back(&node);
      ++at_;
    } else if (token.type == Type::print_begin) {
      Statement& node = make(Statement::Kind::print, token.line);
      ++at_;
      node.expression = tuple(true, false);
      if (now().type != Type::print_end) unexpected("'}}'");
      ++at_;
      out.push_back(&node);
    } else {
      ++at_;  // block_begin: nothing else follows a tag
      if (now().type == Type::name && std::find(ends.begin(), ends.end(), now().text) != ends.end()) return out;
      out.push_back(statement());
    }
  }
}

const Statement* Parser::statement() {
  int line = now().line;
  std::string name = expect_name("the name of a statement");
  if (name == "if") return if_statement(line);
  if (name == "for") return for_statement(line);
  if (name == "set") return set_statement(line);
  if (name == "macro") return macro_statement(line);
  if (name == "with") return with_statement(line);
  if (name == "break" || name == "continue") return loop_control(line, name == "break");
  if (name == "generation") {  // marks the assistant's tokens for training; the text is what is between
    Statement& node = make(Statement::Kind::scope, line);
    end_block();
    node.body = block({"endgeneration"}, "generation", line);
    ++at_;
    end_block();
    return &node;
  }
  if (name == "filter") {
    Statement& node = make(Statement::Kind::filter_block, line);
    node.expression = filters(filter(&make(Expression::Kind::captured, line)), true);
    end_block();
    node.body = block({"endfilter"}, "filter", line);
    ++at_;
    end_block();
    return &node;
  }
  problem(Code::unsupported, line,
          "unknown statement '{}'; a chat template may use if, for, set, macro, with, filter, raw, break, continue and "
          "generation",
          name);
}

const Statement* Parser::if_statement(int line) {
  Statement& node = make(Statement::Kind::if_, line);
  while (true) {
    const Expression* condition = tuple(false, false);
    end_block();
    node.branches.emplace_back(condition, block({"elif", "else", "endif"}, "if", line));
    if (skip_name("elif")) continue;
    if (skip_name("else")) {
      end_block();
      node.otherwise = block({"endif"}, "if", line);
    }
    ++at_;
    end_block();
    return &node;
  }
}

const Statement* Parser::for_statement(int line) {
  Statement& node = make(Statement::Kind::for_, line);
  node.target = target(false);
  if (!skip_name("in")) unexpected("'in'");
  node.expression = tuple(false, false);
  if (skip_name("if")) node.condition = expression();
  if (is_name("recursive")) problem(Code::unsupported, line, "recursive loops are not supported; use a macro");
  end_block();
  ++loops_;
  node.body = block({"else", "endfor"}, "for", line);
  --loops_;
  if (skip_name("else")) {
    end_block();
    node.otherwise = block({"endfor"}, "for", line);
  }
  ++at_;
  end_block();
  return &node;
}

const Statement* Parser::set_statement(int line) {
  const Expression* where = target(true);
  if (skip_op("=")) {
    Statement& node = make(Statement::Kind::set, line);
    node.target = where;
    node.expression = tuple(true, false);
    end_block();
    return &node;
  }
  Statement& node = make(Statement::Kind::set_block, line);
  node.target = where;
  if (is_op("|")) node.expression = filters(&make(Expression::Kind::captured, line), true);
  end_block();
  node.body = block({"endset"}, "set", line);
  ++at_;
  end_block();
  return &node;
}

const Statement* Parser::macro_statement(int line) {
  Statement& node = make(Statement::Kind::macro, line);
  node.text = expect_name("the name of a macro");
  assigned_.insert(node.text);
  expect_op("(");
  while (!is_op(")")) {
    if (!node.parameters.empty()) expect_op(",");
    std::string name = expect_name("the name of a parameter");
    assigned_.insert(name);
    const Expression* otherwise = skip_op("=") ? expression() : nullptr;
    if (otherwise == nullptr && !node.parameters.empty() && node.parameters.back().second != nullptr) {
      problem(Code::invalid_data, line, "parameter '{}' without a default follows one that has a default", name);
    }
    node.parameters.emplace_back(std::move(name), otherwise);
  }
  expect_op(")");
  end_block();
  int loops_outside = std::exchange(loops_, 0);
  node.body = block({"endmacro"}, "macro", line);
  loops_ = loops_outside;
  ++at_;
  end_block();
  return &node;
}

const Statement* Parser::with_statement(int line) {
  Statement& node = make(Statement::Kind::with, line);
  while (now().type != Type::block_end) {
    if (!node.parameters.empty()) expect_op(",");
    std::string name = expect_name("the name of a variable");
    assigned_.insert(name);
    expect_op("=");
    node.parameters.emplace_back(std::move(name), expression());
  }
  end_block();
  node.body = block({"endwith"}, "with", line);
  ++at_;
  end_block();
  return &node;
}

const Statement* Parser::loop_control(int line, bool leave) {
  if (loops_ == 0) {
    problem(Code::invalid_data, line, "'{}' stands outside of a loop; put it into a for block",
            leave ? "break" : "continue");
  }
  end_block();
  return &make(leave ? Statement::Kind::break_ : Statement::Kind::continue_, line);
}

// The targets of set and for: names, tuples of them, and for set the attribute of a namespace.
const Expression* Parser::target(bool allow_attribute) {
  int line = now().line;
  std::vector<const Expression*> parts = {single_target(allow_attribute)};
  bool several = false;
  while (skip_op(",")) {
    several = true;
    if (is_op("=") || is_name("in") || is_op(")") || now().type == Type::block_end) break;
    parts.push_back(single_target(allow_attribute));
  }
  return several ? &make(Expression::Kind::tuple, line, std::move(parts)) : parts[0];
}

const Expression* Parser::single_target(bool allow_attribute) {
  Nested nested(*this);
  int line = now().line;
  if (skip_op("(")) {
    const Expression* inner = target(allow_attribute);
    expect_op(")");
    return inner;
  }
  std::string name = expect_name("the name of a variable");
  if (name == "loop" || name == "true" || name == "false" || name == "none" || name == "True" || name == "False" ||
      name == "None") {
    problem(Code::invalid_data, line, "'{}' cannot be assigned; choose another name", name);
  }
  Expression& node = make(Expression::Kind::name, line);
  node.text = name;
  if (allow_attribute && skip_op(".")) {
    Expression& held = make(Expression::Kind::attribute, line, {&node});
    held.text = expect_name("the name of an attribute");
    assigned_.insert(held.text);  // it may hold a macro
    return &held;
  }
  assigned_.insert(std::move(name));
  return &node;
}

}  // namespace switchyard::jinja
