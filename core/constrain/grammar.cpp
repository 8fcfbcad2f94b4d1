// SPDX-License-Identifier: Apache-2.0
#include "core/constrain/grammar.h"

#include <algorithm>

#include "core/base/printable.h"

namespace switchyard::constrain {

using Kind = GrammarNode::Kind;

NodeId Grammar::add(GrammarNode node, const std::vector<NodeId>& below) {
  if (!below.empty()) {
    node.a = static_cast<uint32_t>(kids.size());
    node.kids = static_cast<uint32_t>(below.size());
    kids.insert(kids.end(), below.begin(), below.end());
  }
  nodes.push_back(node);
  return static_cast<NodeId>(nodes.size() - 1);
}

NodeId Grammar::leaf(Expr e) { return add({.kind = Kind::leaf, .a = e}); }

NodeId Grammar::sequence(const std::vector<NodeId>& parts) {
  std::vector<NodeId> joined;
  for (const NodeId n : parts) {
    if (is_leaf(n) && nodes[n].a == kEpsilon) continue;
    if (!joined.empty() && is_leaf(n) && is_leaf(joined.back())) {
      joined.back() = leaf(expressions.concat(nodes[joined.back()].a, nodes[n].a));
    } else {
      joined.push_back(n);
    }
  }
  if (joined.empty()) return leaf(kEpsilon);
  return joined.size() == 1 ? joined[0] : add({.kind = Kind::sequence}, joined);
}

NodeId Grammar::either(const std::vector<NodeId>& ways) {
  std::vector<NodeId> others;
  std::vector<Expr> leaves;
  for (const NodeId n : ways) {
    if (is_leaf(n)) {
      leaves.push_back(nodes[n].a);
    } else {
      others.push_back(n);
    }
  }
  if (!leaves.empty()) others.push_back(leaf(expressions.either(std::move(leaves))));
  if (others.empty()) return leaf(kNothing);
  return others.size() == 1 ? others[0] : add({.kind = Kind::either}, others);
}

NodeId Grammar::repeat(NodeId node, uint32_t min, uint32_t max) {
  if (is_leaf(node)) return leaf(expressions.repeat(nodes[node].a, min, max));
  if (max == 0) return leaf(kEpsilon);
  if (min == 1 && max == 1) return node;
  return add({.kind = Kind::repeat, .min = min, .max = max}, {node});
}

NodeId Grammar::list(ListSpec spec) {
  unique_texts = unique_texts || spec.unique != kNothing;
  lists.push_back(std::move(spec));
  return add({.kind = Kind::list, .a = static_cast<uint32_t>(lists.size() - 1)});
}

NodeId Grammar::object(ObjectSpec spec) {
  objects.push_back(std::move(spec));
  return add({.kind = Kind::object, .a = static_cast<uint32_t>(objects.size() - 1)});
}

RuleId Grammar::add_rule(std::string name) {
  rules.push_back({std::move(name), kNone});
  return static_cast<RuleId>(rules.size() - 1);
}

void Grammar::set_rule(RuleId rule, NodeId body) { rules[rule].body = body; }

NodeId Grammar::use(RuleId rule) {
  const NodeId body = rules[rule].body;
  if (body != kNone && is_leaf(body)) return body;
  return add({.kind = Kind::rule, .a = rule});
}

std::vector<NodeId> Grammar::below(NodeId n) const {
  const GrammarNode& node = nodes[n];
  std::vector<NodeId> out;
  switch (node.kind) {
    case Kind::leaf:
      break;
    case Kind::rule:
      out.push_back(rules[node.a].body);
      break;
    case Kind::list:
      out = lists[node.a].first;
      if (lists[node.a].rest != kNone) out.push_back(lists[node.a].rest);
      break;
    case Kind::object:
      for (const auto& member : objects[node.a].members) out.push_back(member.value);
      break;
    default:
      out.assign(kids.begin() + node.a, kids.begin() + node.a + node.kids);
  }
  return out;
}

bool Grammar::is_nullable(NodeId n) const {
  const GrammarNode& node = nodes[n];
  const auto kid = [&](NodeId k) { return nodes[k].nullable; };
  switch (node.kind) {
    case Kind::leaf:
      return expressions.nullable(node.a);
    case Kind::sequence:
      return std::ranges::all_of(kids_of(node), kid);
    case Kind::either:
      return std::ranges::any_of(kids_of(node), kid);
    case Kind::repeat:
      return node.min == 0 || kid(kids[node.a]);
    case Kind::rule:
      return kid(rules[node.a].body);
    case Kind::list:
    case Kind::object:
      return false;  // they have brackets
  }
  return false;
}

bool Grammar::is_possible(NodeId n) const {
  const GrammarNode& node = nodes[n];
  const auto kid = [&](NodeId k) { return nodes[k].possible; };
  switch (node.kind) {
    case Kind::leaf:
      return node.possible;
    case Kind::sequence:
      return std::ranges::all_of(kids_of(node), kid);
    case Kind::either:
      return std::ranges::any_of(kids_of(node), kid);
    case Kind::repeat:
      return node.min == 0 || kid(kids[node.a]);
    case Kind::rule:
      return kid(rules[node.a].body);
    case Kind::list: {
      const ListSpec& list = lists[node.a];
      if (list.min > list.max) return false;
      for (uint32_t i = 0; i < list.min && i <= list.first.size(); ++i) {
        if (list.item(i) == kNone || !kid(list.item(i))) return false;
      }
      return true;
    }
    case Kind::object: {
      const ObjectSpec& object = objects[node.a];
      uint64_t required = 0, most = 0;
      for (const auto& member : object.members) {
        const bool usable = kid(member.value);
        if (member.required && !usable) return false;
        required += member.required ? 1 : 0;
        most += !usable ? 0 : member.once ? 1 : uint64_t{kUnbounded};
      }
      return required <= object.max && object.min <= object.max && object.min <= most;
    }
  }
  return false;
}

// Sets a flag in every node for which `holds`, where that depends on the flags of the nodes below.
void Grammar::solve(bool GrammarNode::*flag, bool (Grammar::*holds)(NodeId) const) {
  std::vector<uint32_t> count(nodes.size() + 1), users;
  for (NodeId n = 0; n < nodes.size(); ++n) {
    for (const NodeId k : below(n)) ++count[k + 1];
  }
  for (size_t i = 1; i < count.size(); ++i) count[i] += count[i - 1];
  users.resize(count.back());
  std::vector<uint32_t> at(count.begin(), count.end() - 1);
  for (NodeId n = 0; n < nodes.size(); ++n) {
    for (const NodeId k : below(n)) users[at[k]++] = n;
  }
  std::vector<NodeId> agenda;
  for (NodeId n = 0; n < nodes.size(); ++n) agenda.push_back(static_cast<NodeId>(nodes.size() - 1 - n));
  std::vector<bool> done(nodes.size());
  while (!agenda.empty()) {
    const NodeId n = agenda.back();
    agenda.pop_back();
    if (done[n] || !(this->*holds)(n)) continue;
    nodes[n].*flag = true;
    done[n] = true;
    agenda.insert(agenda.end(), users.begin() + count[n], users.begin() + count[n + 1]);
  }
}

void Grammar::drop_impossible(ObjectSpec& spec) const {
  std::erase_if(spec.members, [&](const auto& member) { return !nodes[member.value].possible; });
  std::stable_partition(spec.members.begin(), spec.members.end(), [](const auto& m) { return m.once; });
  spec.required = static_cast<uint32_t>(
      std::count_if(spec.members.begin(), spec.members.end(), [](const auto& m) { return m.required; }));
}

void Grammar::drop_impossible(ListSpec& spec) const {
  for (uint32_t i = 0; i <= spec.first.size(); ++i) {
    if (spec.item(i) == kNone || !nodes[spec.item(i)].possible) {
      spec.max = std::min(spec.max, i);
      return;
    }
  }
}

void Grammar::drop_impossible() {
  for (GrammarNode& node : nodes) {
    if (node.kind == Kind::either) {
      const auto begin = kids.begin() + node.a;
      node.kids = static_cast<uint32_t>(
          std::stable_partition(begin, begin + node.kids, [&](NodeId k) { return nodes[k].possible; }) - begin);
    }
    if (node.kind == Kind::repeat && !nodes[kids[node.a]].possible) {
      node = {.kind = Kind::leaf, .nullable = true, .possible = true, .a = kEpsilon};
    }
    if (node.kind == Kind::repeat && nodes[kids[node.a]].nullable) node.min = 0;
  }
  for (ObjectSpec& spec : objects) drop_impossible(spec);
  for (ListSpec& spec : lists) drop_impossible(spec);
}

// A -> A x | y is A -> y x*, which has the same texts.
void Grammar::turn_left_recursion(RuleId rule) {
  const GrammarNode body = nodes[rules[rule].body];
  if (body.kind != Kind::either) return;
  std::vector<NodeId> again, once;
  for (uint32_t i = 0; i < body.kids; ++i) {
    const NodeId k = kids[body.a + i];
    const GrammarNode& way = nodes[k];
    const auto is_self = [&](NodeId n) { return nodes[n].kind == Kind::rule && nodes[n].a == rule; };
    if (is_self(k)) continue;  // A -> A adds nothing
    if (way.kind == Kind::sequence && is_self(kids[way.a])) {
      again.push_back(sequence({kids.begin() + way.a + 1, kids.begin() + way.a + way.kids}));
    } else {
      once.push_back(k);
    }
  }
  if (again.empty() && once.size() == body.kids) return;
  rules[rule].body = sequence({either(once), repeat(either(again), 0, kUnbounded)});
}

void Grammar::begins_with(NodeId n, std::vector<RuleId>& out) const {
  const GrammarNode& node = nodes[n];
  if (node.kind == Kind::rule) out.push_back(node.a);
  if (node.kind != Kind::sequence && node.kind != Kind::either && node.kind != Kind::repeat) return;
  for (uint32_t i = 0; i < node.kids; ++i) {
    const NodeId k = kids[node.a + i];
    begins_with(k, out);
    if (node.kind == Kind::sequence && !nodes[k].nullable) return;
  }
}

Status Grammar::check_left_recursion() const {
  enum : uint8_t { fresh, open, done };
  std::vector<uint8_t> state(rules.size(), fresh);
  struct Step {
    RuleId rule;
    std::vector<RuleId> next;
  };
  std::vector<Step> path;
  const auto enter = [&](RuleId rule) {
    state[rule] = open;
    path.push_back({rule, {}});
    begins_with(rules[rule].body, path.back().next);
  };
  for (RuleId first = 0; first < rules.size(); ++first) {
    if (state[first] == fresh) enter(first);
    while (!path.empty()) {
      if (path.back().next.empty()) {
        state[path.back().rule] = done;
        path.pop_back();
        continue;
      }
      const RuleId next = path.back().next.back();
      path.back().next.pop_back();
      if (state[next] == open) {
        return error(Code::usage,
                     "rule '{}' begins with itself, through other rules; write it so that something comes first",
                     printable(rules[next].name));
      }
      if (state[next] == fresh) enter(next);
    }
  }
  return {};
}

Status Grammar::finish(NodeId top) {
  for (RuleId r = 0, n = static_cast<RuleId>(rules.size()); r < n; ++r) turn_left_recursion(r);
  root = top;
  for (GrammarNode& node : nodes) {
    if (node.kind == Kind::leaf) node.possible = expressions.alive(node.a);
  }
  solve(&GrammarNode::nullable, &Grammar::is_nullable);
  solve(&GrammarNode::possible, &Grammar::is_possible);
  SWY_TRY(expressions.status());
  if (!nodes[root].possible) return error(Code::usage, "no text can satisfy it");
  drop_impossible();
  return check_left_recursion();
}

}  // namespace switchyard::constrain
