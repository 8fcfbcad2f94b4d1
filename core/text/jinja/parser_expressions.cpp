// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/text/jinja/builtins.h"
#include "core/text/jinja/parser.h"

namespace switchyard::jinja {

using Type = Token::Type;
using Op = Expression::Kind;

Expression& Parser::make(Op kind, int line, std::vector<const Expression*> operands) {
  Expression& node = tree_.expressions.emplace_back();
  node.kind = kind;
  node.line = line;
  node.operands = std::move(operands);
  return node;
}

bool Parser::ends_tuple() const { return now().type == Type::print_end || now().type == Type::block_end || is_op(")"); }

// One expression, or several with commas between, which make a tuple.
const Expression* Parser::tuple(bool with_choice, bool in_parentheses) {
  int line = now().line;
  std::vector<const Expression*> parts;
  bool several = false;
  while (!ends_tuple()) {
    parts.push_back(expression(with_choice));
    if (!skip_op(",")) break;
    several = true;
  }
  if (!several && parts.size() == 1) return parts[0];
  if (parts.empty() && !in_parentheses) unexpected("an expression");
  return &make(Op::tuple, line, std::move(parts));
}

const Expression* Parser::expression(bool with_choice) {
  Nested nested(*this);
  const Expression* node = either();
  while (with_choice && is_name("if")) {
    int line = tokens_[at_++].line;
    const Expression* condition = either();
    const Expression* otherwise = skip_name("else") ? expression() : nullptr;
    node = &make(Op::choice, line, {node, condition, otherwise});
  }
  return node;
}

const Expression* Parser::either() {
  const Expression* node = both();
  while (is_name("or")) {
    int line = tokens_[at_++].line;
    node = &make(Op::either, line, {node, both()});
  }
  return node;
}

const Expression* Parser::both() {
  const Expression* node = negation();
  while (is_name("and")) {
    int line = tokens_[at_++].line;
    node = &make(Op::both, line, {node, negation()});
  }
  return node;
}

const Expression* Parser::negation() {
  if (!is_name("not")) return compare();
  Nested nested(*this);
  int line = tokens_[at_++].line;
  return &make(Op::negation, line, {negation()});
}

const Expression* Parser::compare() {
  int line = now().line;
  std::vector<const Expression*> operands = {sum()};
  std::vector<std::string> ops;
  while (true) {
    constexpr std::string_view known[] = {"==", "!=", "<", "<=", ">", ">="};
    bool op = now().type == Type::op && std::find(std::begin(known), std::end(known), now().text) != std::end(known);
    if (op || is_name("in")) {
      ops.push_back(tokens_[at_++].text);
    } else if (is_name("not") && next().type == Type::name && next().text == "in") {
      at_ += 2;
      ops.emplace_back("not in");
    } else {
      break;
    }
    operands.push_back(sum());
  }
  if (ops.empty()) return operands[0];
  Expression& node = make(Op::compare, line, std::move(operands));
  node.texts = std::move(ops);
  return &node;
}

const Expression* Parser::sum() {
  const Expression* node = concat();
  while (is_op("+") || is_op("-")) {
    const Token& op = tokens_[at_++];
    Expression& binary = make(Op::binary, op.line, {node, concat()});
    binary.text = op.text;
    node = &binary;
  }
  return node;
}

const Expression* Parser::concat() {
  int line = now().line;
  std::vector<const Expression*> parts = {product()};
  while (skip_op("~")) parts.push_back(product());
  return parts.size() == 1 ? parts[0] : &make(Op::concat, line, std::move(parts));
}

const Expression* Parser::product() {
  const Expression* node = power();
  while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
    const Token& op = tokens_[at_++];
    Expression& binary = make(Op::binary, op.line, {node, power()});
    binary.text = op.text;
    node = &binary;
  }
  return node;
}

const Expression* Parser::power() {
  const Expression* node = unary(true);
  while (is_op("**")) {
    int line = tokens_[at_++].line;
    Expression& binary = make(Op::binary, line, {node, unary(true)});
    binary.text = "**";
    node = &binary;
  }
  return node;
}

const Expression* Parser::unary(bool with_filters) {
  Nested nested(*this);
  int line = now().line;
  const Expression* node = skip_op("-")   ? &make(Op::minus, line, {unary(false)})
                           : skip_op("+") ? &make(Op::plus, line, {unary(false)})
                                          : primary();
  node = postfix(node);
  return with_filters ? filters(node, false) : node;
}

const Expression* Parser::primary() {
  const Token& token = now();
  auto literal = [&](Value value) {
    Expression& node = make(Op::literal, token.line);
    node.value = std::move(value);
    return &node;
  };
  switch (token.type) {
    case Type::name: {
      ++at_;
      if (token.text == "true" || token.text == "True") return literal(Value(true));
      if (token.text == "false" || token.text == "False") return literal(Value(false));
      if (token.text == "none" || token.text == "None") return literal(Value::none());
      if (token.text == "self" || token.text == "super" || token.text == "caller" || token.text == "varargs" ||
          token.text == "kwargs") {
        if (assigned_.count(token.text) == 0) {
          problem(Code::unsupported, token.line, "the special name '{}' is not supported; pass the value to the macro",
                  token.text);
        }
      }
      Expression& node = make(Op::name, token.line);
      node.text = token.text;
      return &node;
    }
    case Type::text: {
      std::string text;
      for (; now().type == Type::text; ++at_) text += now().text;
      return literal(Value(std::move(text)));
    }
    case Type::integer:
      ++at_;
      return literal(Value(token.integer));
    case Type::real:
      ++at_;
      return literal(Value(token.real));
    default:
      break;
  }
  if (is_op("[")) return list();
  if (is_op("{")) return dict();
  if (!skip_op("(")) unexpected("an expression");
  const Expression* node = tuple(true, true);
  expect_op(")");
  return node;
}

const Expression* Parser::list() {
  int line = tokens_[at_++].line;
  std::vector<const Expression*> items;
  while (!is_op("]")) {
    items.push_back(expression());
    if (!skip_op(",")) break;
  }
  expect_op("]");
  return &make(Op::list, line, std::move(items));
}

const Expression* Parser::dict() {
  int line = tokens_[at_++].line;
  std::vector<const Expression*> items;
  while (!is_op("}")) {
    items.push_back(expression());
    expect_op(":");
    items.push_back(expression());
    if (!skip_op(",")) break;
  }
  expect_op("}");
  return &make(Op::dict, line, std::move(items));
}

const Expression* Parser::postfix(const Expression* node) {
  while (true) {
    if (is_op(".") || is_op("[")) {
      node = subscript(node);
    } else if (is_op("(")) {
      node = call(node);
    } else {
      return node;
    }
  }
}

const Expression* Parser::subscript(const Expression* node) {
  int line = now().line;
  if (skip_op(".")) {
    if (now().type == Type::integer) {  // jinja2 takes `x.0` as `x[0]`
      Expression& index = make(Op::literal, line);
      index.value = Value(tokens_[at_++].integer);
      return &make(Op::item, line, {node, &index});
    }
    Expression& attribute = make(Op::attribute, line, {node});
    attribute.text = expect_name("the name of an attribute");
    return &attribute;
  }
  ++at_;
  std::vector<const Expression*> parts = {node};
  bool is_slice = false;
  const Expression* part = nullptr;
  while (!is_op("]")) {
    if (skip_op(":")) {
      parts.push_back(std::exchange(part, nullptr));
      is_slice = true;
      if (parts.size() > 3) unexpected("']'");
    } else if (part == nullptr) {
      part = expression();
    } else {
      unexpected("']'");
    }
  }
  ++at_;
  if (!is_slice && part == nullptr) problem(Code::invalid_data, line, "'[]' needs an index");
  parts.push_back(part);
  if (is_slice) parts.resize(4, nullptr);
  return &make(is_slice ? Op::slice : Op::item, line, std::move(parts));
}

// Filters, tests and calls after an operand; only filters where a block is filtered.
const Expression* Parser::filters(const Expression* node, bool only_filters) {
  while (true) {
    if (skip_op("|")) {
      node = filter(node);
    } else if (!only_filters && skip_name("is")) {
      node = test(node);
    } else if (!only_filters && is_op("(")) {
      node = call(node);
    } else {
      return node;
    }
  }
}

const Expression* Parser::filter(const Expression* node) {
  int line = now().line;
  std::string name = expect_name("the name of a filter");
  Expression& applied = make(Op::filter, line, {node});
  applied.builtin = find_filter(name);
  if (applied.builtin == nullptr) {
    problem(Code::unsupported, line, "unknown filter '{}'; rewrite the template without it", name);
  }
  applied.text = std::move(name);
  if (is_op("(")) arguments(applied);
  check_name_arguments(applied);
  return &applied;
}

const Expression* Parser::test(const Expression* node) {
  Nested nested(*this);
  int line = now().line;
  bool negated = skip_name("not");
  std::string name = expect_name("the name of a test");
  Expression& applied = make(Op::test, line, {node});
  applied.builtin = find_test(name);
  if (applied.builtin == nullptr) {
    problem(Code::unsupported, line, "unknown test '{}'; rewrite the template without it", name);
  }
  applied.text = std::move(name);
  bool word = now().type == Type::name && !is_name("else") && !is_name("or") && !is_name("and");
  if (is_op("(")) {
    arguments(applied);
  } else if (word || now().type == Type::text || now().type == Type::integer || now().type == Type::real ||
             is_op("[") || is_op("{")) {
    if (is_name("is")) problem(Code::invalid_data, line, "tests cannot be chained with 'is'; join them with 'and'");
    applied.operands.push_back(postfix(primary()));
  }
  return negated ? &make(Op::negation, line, {&applied}) : &applied;
}

// map, select and their kin take the name of a filter or test as a text: looked up here when it is a literal.
void Parser::check_name_arguments(const Expression& node) const {
  const std::string& name = node.text;
  bool by_filter = name == "map";
  bool by_attribute = name == "selectattr" || name == "rejectattr";
  if (!by_filter && !by_attribute && name != "select" && name != "reject") return;
  size_t place = by_attribute ? 2 : 1;
  if (node.operands.size() <= place) return;
  const Expression& argument = *node.operands[place];
  if (argument.kind != Op::literal || !argument.value.is(Kind::string)) return;
  const std::string& wanted = argument.value.text();
  if ((by_filter ? find_filter(wanted) : find_test(wanted)) == nullptr) {
    problem(Code::unsupported, node.line, "unknown {} '{}' in '{}'; rewrite the template without it",
            by_filter ? "filter" : "test", wanted, name);
  }
}

const Expression* Parser::call(const Expression* node) {
  int line = now().line;
  if (node->kind == Op::name) called_.emplace_back(node->text, line);
  if (node->kind == Op::attribute) {
    if (changes_its_receiver(Kind::list, node->text) || changes_its_receiver(Kind::dict, node->text)) {
      problem(
          Code::unsupported, line,
          "method '{}' changes its list or dict, which chat templates may not; build a new one with '+' or dict(...)",
          node->text);
    }
    if (!is_method(node->text) && assigned_.count(node->text) == 0) {
      problem(Code::unsupported, line, "unknown method '{}'; rewrite the template without it", node->text);
    }
  }
  Expression& called = make(Op::call, line, {node});
  arguments(called);
  return &called;
}

void Parser::arguments(Expression& node) {
  expect_op("(");
  while (!is_op(")")) {
    if (is_op("*") || is_op("**")) {
      problem(Code::unsupported, now().line, "arguments with '{}' are not supported; name them one by one", now().text);
    }
    if (now().type == Type::name && next().type == Type::op && next().text == "=") {
      std::string name = tokens_[at_].text;
      at_ += 2;
      assigned_.insert(name);  // namespace(f=macro)
      node.named.emplace_back(std::move(name), expression());
    } else {
      if (!node.named.empty())
        problem(Code::invalid_data, now().line, "an argument without a name follows one with a name");
      node.operands.push_back(expression());
    }
    if (!skip_op(",")) break;
  }
  expect_op(")");
}

}  // namespace switchyard::jinja
