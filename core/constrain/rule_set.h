// SPDX-License-Identifier: Apache-2.0
// RuleSet: the rules of a written grammar, before it is known which of them recurse. Those that do not become part of
// the expressions that use them, so that most of a usual grammar is one expression.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/status.h"
#include "core/constrain/grammar.h"

namespace switchyard::constrain {

struct RuleTerm {
  enum class Kind : uint8_t { leaf, rule, sequence, either, repeat };
  Kind kind = Kind::sequence;
  Expr expr = kEpsilon;
  std::string name = {};  // of a rule
  uint32_t min = 0, max = 0;
  std::vector<RuleTerm> kids = {};
};

class RuleSet {
 public:
  // Errors: usage, if there is such a rule already, or if there are too many.
  Status add(const std::string& name, RuleTerm term);
  bool has(const std::string& name) const { return index_.contains(name); }
  const std::vector<std::pair<std::string, RuleTerm>>& all() const { return rules_; }
  std::vector<std::pair<std::string, RuleTerm>>& all() { return rules_; }
  // Adds what the rule needs. Errors: usage, for a rule that is not there.
  Result<NodeId> build(Grammar& grammar, const std::string& start);

 private:
  enum class Progress : uint8_t { none, open, done };
  struct Built {
    Progress progress = Progress::none;
    RuleId rule = kNone;
    NodeId node = kNone;
  };
  Result<NodeId> rule(Grammar& grammar, size_t index);
  Result<NodeId> term(Grammar& grammar, const RuleTerm& t);
  NodeId refer(Grammar& grammar, size_t index);

  std::vector<std::pair<std::string, RuleTerm>> rules_;
  std::unordered_map<std::string, size_t> index_;
  std::vector<Built> built_;
  std::vector<size_t> later_;  // rules that are referred to, and not built yet
  unsigned depth_ = 0;
};

}  // namespace switchyard::constrain
