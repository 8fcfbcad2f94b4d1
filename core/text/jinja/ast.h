// SPDX-License-Identifier: Apache-2.0
// The tree of a parsed template. Nodes belong to the Tree, refer to each other by plain pointers and never change, so
// that any number of threads may render one tree.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "core/text/jinja/value.h"

namespace switchyard::jinja {

struct Builtin;

struct Expression {
  enum class Kind : uint8_t {
    literal,    // value
    name,       // text
    list,       // operands
    tuple,      // operands
    dict,       // operands: key, value, key, value ...
    attribute,  // operands[0].text
    item,       // operands[0][operands[1]]
    slice,      // operands[0][operands[1]:operands[2]:operands[3]]; null where left out
    call,       // operands[0](operands[1...], named)
    filter,     // operands[0] | builtin(operands[1...], named)
    test,       // operands[0] is builtin(operands[1...], named)
    negation,   // not operands[0]
    minus,      // -operands[0]
    plus,       // +operands[0]
    binary,     // operands[0] text operands[1]
    concat,     // all operands as one text
    compare,    // operands[0] texts[0] operands[1] texts[1] operands[2] ...
    both,       // operands[0] and operands[1]
    either,     // operands[0] or operands[1]
    choice,     // operands[0] if operands[1] else operands[2], which may be null
    captured,   // the text of the block to which a filter is applied
  };
  Kind kind;
  int line;
  std::string text;
  Value value;
  std::vector<const Expression*> operands;
  std::vector<std::pair<std::string, const Expression*>> named;
  std::vector<std::string> texts;
  const Builtin* builtin = nullptr;
};

struct Statement;
using Block = std::vector<const Statement*>;

struct Statement {
  enum class Kind : uint8_t {
    data,          // text
    print,         // expression
    if_,           // branches, then otherwise
    for_,          // target in expression if condition: body, otherwise
    set,           // target = expression
    set_block,     // target = body, through expression (filters over `captured`, or null)
    filter_block,  // body through expression
    macro,         // text(parameters): body
    with,          // parameters: body
    scope,         // body, with its own variables
    break_,
    continue_,
  };
  Kind kind;
  int line;
  std::string text;
  const Expression* target = nullptr;  // a name, a tuple of targets, or the attribute of a namespace
  const Expression* expression = nullptr;
  const Expression* condition = nullptr;
  std::vector<std::pair<const Expression*, Block>> branches;
  // Of a macro: names and defaults (null if there is none). Of `with`: targets that are names, and their values.
  std::vector<std::pair<std::string, const Expression*>> parameters;
  Block body;
  Block otherwise;
};

struct Tree {
  std::deque<Expression> expressions;
  std::deque<Statement> statements;
  Block body;
};

}  // namespace switchyard::jinja
