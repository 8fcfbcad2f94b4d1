// SPDX-License-Identifier: Apache-2.0
// Grammar: the one compiled form of every kind of constraint. Its leaves are expressions over bytes; above them are
// sequences, alternatives, repetitions, and two counted forms that would be exponentially large as rules: lists, and
// objects whose members come in any order. Rules may recurse, but not at their left end.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/constrain/expressions.h"

namespace switchyard::constrain {

using NodeId = uint32_t;
using RuleId = uint32_t;
constexpr uint32_t kNone = UINT32_MAX;

struct GrammarNode {
  enum class Kind : uint8_t { leaf, sequence, either, repeat, list, object, rule };
  Kind kind = Kind::leaf;
  bool nullable = false;
  bool possible = false;      // it has a text
  uint32_t a = 0;             // leaf: the expression; list, object, rule: an index; else: the first kid
  uint32_t kids = 0;          // of a sequence, an alternative; 1 of a repetition
  uint32_t min = 0, max = 0;  // of a repetition
};

// open item separator item ... close. Items beyond `first` are `rest`.
struct ListSpec {
  Expr open = kEpsilon, separator = kEpsilon, close = kEpsilon;
  std::vector<NodeId> first = {};
  NodeId rest = kNone;
  uint32_t min = 0, max = kUnbounded;
  // Of JSON strings that must differ: what their decoded texts are. The automaton is told each one (saw_item).
  Expr unique = kNothing;
  NodeId item(uint32_t index) const { return index < first.size() ? first[index] : rest; }
};

// open key value separator key value ... close, in any order.
struct ObjectSpec {
  struct Member {
    Expr key = kNothing;  // with all that comes before the value
    NodeId value = kNone;
    bool required = false;
    bool once = true;  // false: the key stands for many names
  };
  Expr open = kEpsilon, separator = kEpsilon, close = kEpsilon;
  std::vector<Member> members = {};
  uint32_t min = 0, max = kUnbounded;  // members
  uint32_t required = 0;               // their number; `finish` counts
};

class Grammar {
 public:
  explicit Grammar(size_t max_expressions) : expressions(max_expressions) {}

  NodeId leaf(Expr e);
  NodeId sequence(const std::vector<NodeId>& parts);
  NodeId either(const std::vector<NodeId>& ways);
  NodeId repeat(NodeId node, uint32_t min, uint32_t max);
  NodeId list(ListSpec spec);
  NodeId object(ObjectSpec spec);
  RuleId add_rule(std::string name);
  void set_rule(RuleId rule, NodeId body);
  NodeId use(RuleId rule);  // the rule; or its body, where that is known to be a leaf

  // Once everything is added. Errors: usage, for a rule that begins with itself, or where no text is possible.
  Status finish(NodeId root);

  Expressions expressions;
  std::vector<GrammarNode> nodes;
  std::vector<NodeId> kids;
  std::vector<ListSpec> lists;
  bool unique_texts = false;  // of some list
  std::vector<ObjectSpec> objects;
  struct Rule {
    std::string name;
    NodeId body = kNone;
  };
  std::vector<Rule> rules;
  NodeId root = kNone;

 private:
  NodeId add(GrammarNode node, const std::vector<NodeId>& kids = {});
  bool is_leaf(NodeId n) const { return nodes[n].kind == GrammarNode::Kind::leaf; }
  // Of a sequence or an alternative; `a` of many other nodes is no place in `kids`.
  std::span<const NodeId> kids_of(const GrammarNode& node) const { return std::span(kids).subspan(node.a, node.kids); }
  std::vector<NodeId> below(NodeId n) const;
  void solve(bool GrammarNode::*flag, bool (Grammar::*holds)(NodeId) const);
  bool is_nullable(NodeId n) const;
  bool is_possible(NodeId n) const;
  void drop_impossible();
  void drop_impossible(ObjectSpec& spec) const;
  void drop_impossible(ListSpec& spec) const;
  void turn_left_recursion(RuleId rule);
  void begins_with(NodeId n, std::vector<RuleId>& out) const;
  Status check_left_recursion() const;
};

}  // namespace switchyard::constrain
