// SPDX-License-Identifier: Apache-2.0
#include "core/constrain/rule_set.h"

#include "core/base/printable.h"

namespace switchyard::constrain {
namespace {

constexpr size_t kMaxRules = 20'000;
constexpr unsigned kMaxNesting = 64;  // of rules within each other that become one expression

}  // namespace

Status RuleSet::add(const std::string& name, RuleTerm term) {
  if (rules_.size() >= kMaxRules) return error(Code::usage, "it has more than {} rules", kMaxRules);
  if (!index_.emplace(name, rules_.size()).second) {
    return error(Code::usage, "rule '{}' is there twice", printable(name));
  }
  rules_.emplace_back(name, std::move(term));
  return {};
}

Result<NodeId> RuleSet::build(Grammar& grammar, const std::string& start) {
  const auto found = index_.find(start);
  if (found == index_.end()) return error(Code::usage, "it has no rule '{}', which would be the whole text", start);
  built_.assign(rules_.size(), {});
  SWY_LET(const NodeId root, rule(grammar, found->second));
  while (!later_.empty()) {
    const size_t index = later_.back();
    later_.pop_back();
    SWY_TRY(rule(grammar, index).status());
  }
  return root;
}

NodeId RuleSet::refer(Grammar& grammar, size_t index) {
  if (built_[index].rule == kNone) built_[index].rule = grammar.add_rule(rules_[index].first);
  return grammar.use(built_[index].rule);
}

Result<NodeId> RuleSet::rule(Grammar& grammar, size_t index) {
  if (built_[index].progress == Progress::done) {
    const NodeId node = built_[index].node;
    if (grammar.nodes[node].kind == GrammarNode::Kind::leaf) return node;
    return refer(grammar, index);
  }
  if (built_[index].progress == Progress::open) return refer(grammar, index);
  if (depth_ >= kMaxNesting) {
    later_.push_back(index);
    return refer(grammar, index);
  }
  built_[index].progress = Progress::open;
  ++depth_;
  auto node = term(grammar, rules_[index].second);
  --depth_;
  if (!node.ok()) return node;
  built_[index].progress = Progress::done;
  built_[index].node = *node;
  const bool leaf = grammar.nodes[*node].kind == GrammarNode::Kind::leaf;
  if (built_[index].rule == kNone && leaf) return node;
  const NodeId use = refer(grammar, index);
  grammar.set_rule(built_[index].rule, *node);
  return leaf ? *node : use;
}

Result<NodeId> RuleSet::term(Grammar& grammar, const RuleTerm& t) {
  if (t.kind == RuleTerm::Kind::leaf) return grammar.leaf(t.expr);
  if (t.kind == RuleTerm::Kind::rule) {
    const auto found = index_.find(t.name);
    if (found == index_.end()) return error(Code::usage, "there is no rule '{}'", printable(t.name));
    return rule(grammar, found->second);
  }
  std::vector<NodeId> kids;
  for (const RuleTerm& kid : t.kids) {
    SWY_LET(const NodeId node, term(grammar, kid));
    kids.push_back(node);
  }
  if (t.kind == RuleTerm::Kind::sequence) return grammar.sequence(kids);
  if (t.kind == RuleTerm::Kind::either) return grammar.either(kids);
  return grammar.repeat(kids[0], t.min, t.max);
}

}  // namespace switchyard::constrain
