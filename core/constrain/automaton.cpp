// SPDX-License-Identifier: Apache-2.0
#include "core/constrain/automaton.h"

#include <algorithm>

#include <fmt/format.h>

namespace switchyard::constrain {
namespace {

using Kind = GrammarNode::Kind;

constexpr uint32_t kMaxDepth = 1000;    // of nodes that begin within each other
constexpr size_t kMaxAgenda = 1 << 18;  // frames that one byte completes
constexpr uint32_t kBottom = 0;         // the stack of the whole text
constexpr size_t kMoreExpressions = 1 << 20;

}  // namespace

Automaton::Automaton(const Grammar& grammar, const TokenTrie& trie, const AutomatonLimits& limits)
    : g_(grammar), trie_(trie), limits_(limits), x_(grammar.expressions) {
  x_.limit(x_.size() + kMoreExpressions);
  begin_operation();
  rule_step_.resize(g_.rules.size());
  rule_open_.resize(g_.rules.size());
  roots_.fill(kNone);
  for (uint32_t i = 0; i < trie_.all().size(); i = trie_.all()[i].next()) roots_[trie_.all()[i].byte()] = i;
  std::vector<uint32_t> bottom = {intern_frame({})};
  intern_stack(bottom);
  intern_members({});
  scratch_.clear();
  intern_state(scratch_, false);  // kDead
  begin_step();
  enter(g_.root, kBottom);
  if (g_.nodes[g_.root].nullable) complete(kBottom);
  resume_all();
  start_ = close(accepting_);
}

std::string Automaton::fault() const {
  switch (limit_) {
    case Limit::none:
      break;
    case Limit::states:
      return fmt::format("one token may make {} states; use smaller counts or fewer repetitions within each other",
                         limits_.new_states);
    case Limit::items:
      return fmt::format("it has more than {} alternatives at once; use fewer that begin alike", limits_.items);
    case Limit::depth:
      return fmt::format("its rules begin within each other more than {} deep; write something before them", kMaxDepth);
    case Limit::texts:
      return fmt::format("a list whose items must differ may have {} of them, and fewer long ones; give it fewer",
                         kMaxTexts);
    case Limit::expressions:
      return x_.status().message();
  }
  return "";
}

size_t Automaton::memory_bytes() const {
  return x_.memory_bytes() + rows_.size() * sizeof(Row) + states_.size() * sizeof(StateData) +
         items_.size() * sizeof(Item) + frames_.size() * (sizeof(Frame) + 4) + stacks_.size() * (sizeof(Range) + 4) +
         stack_frames_.size() * 4 + masks_.size() * trie_.mask_words() * 4 + leaf_bytes_ + text_bytes_ +
         after_.size() * sizeof(State) + state_table_.bytes() + frame_table_.bytes() + stack_table_.bytes() +
         members_.size() * (sizeof(Members) + 64);
}

uint32_t Automaton::intern_frame(const Frame& f) {
  const uint64_t hash = mix(mix(mix(f.node, f.place), f.members), f.parent);
  const uint32_t found = frame_table_.find(hash, [&](uint32_t i) { return frames_[i] == f; });
  if (found != IndexTable::kNone) return found;
  frame_table_.insert(hash, static_cast<uint32_t>(frames_.size()));
  frames_.push_back(f);
  frame_step_.push_back(0);
  return static_cast<uint32_t>(frames_.size() - 1);
}

Automaton::Stack Automaton::intern_stack(std::vector<uint32_t>& frames) {
  std::sort(frames.begin(), frames.end());
  frames.erase(std::unique(frames.begin(), frames.end()), frames.end());
  uint64_t hash = frames.size();
  for (const uint32_t f : frames) hash = mix(hash, f);
  const uint32_t found = stack_table_.find(hash, [&](uint32_t i) {
    return std::ranges::equal(std::span(stack_frames_).subspan(stacks_[i].first, stacks_[i].count), frames);
  });
  if (found != IndexTable::kNone) return found;
  stack_table_.insert(hash, static_cast<uint32_t>(stacks_.size()));
  stacks_.push_back({static_cast<uint32_t>(stack_frames_.size()), static_cast<uint32_t>(frames.size())});
  stack_frames_.insert(stack_frames_.end(), frames.begin(), frames.end());
  stack_step_.push_back(0);
  return static_cast<Stack>(stacks_.size() - 1);
}

uint32_t Automaton::intern_members(Members m) {
  uint64_t hash = m.count;
  for (const uint64_t w : m.seen) hash = mix(hash, w);
  const uint32_t found = member_table_.find(hash, [&](uint32_t i) { return members_[i] == m; });
  if (found != IndexTable::kNone) return found;
  member_table_.insert(hash, static_cast<uint32_t>(members_.size()));
  members_.push_back(std::move(m));
  return static_cast<uint32_t>(members_.size() - 1);
}

Automaton::State Automaton::intern_state(std::vector<Item>& items, bool accepts) {
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
  uint64_t hash = accepts ? 3 : 5;
  for (const Item& item : items) hash = mix(mix(hash, item.expr), item.stack);
  const uint32_t found = state_table_.find(
      hash, [&](uint32_t i) { return states_[i].accepts == accepts && std::ranges::equal(this->items(i), items); });
  if (found != IndexTable::kNone) return found;
  if (items.size() > limits_.items) fail(Limit::items);
  if (++new_states_ > limits_.new_states) fail(Limit::states);
  state_table_.insert(hash, static_cast<uint32_t>(states_.size()));
  StateData data;
  data.first = static_cast<uint32_t>(items_.size());
  data.count = static_cast<uint32_t>(items.size());
  data.accepts = accepts;
  items_.insert(items_.end(), items.begin(), items.end());
  states_.push_back(data);
  return static_cast<State>(states_.size() - 1);
}

void Automaton::begin_step() {
  ++step_;
  ways_.clear();
  open_count_ = 0;
  accepting_ = false;
  depth_ = 0;
}

Automaton::State Automaton::step(State s, uint8_t byte) {
  if (failed_) return kDead;
  if (states_[s].row == nullptr) {
    Row& row = rows_.emplace_back();
    for (const Item& item : items(s)) row.edges |= x_.edges(item.expr);
    row.to.fill(kUnknown);
    states_[s].row = &row;
  }
  begin_step();
  for (uint32_t i = 0; i < states_[s].count; ++i) {
    const Item item = items_[states_[s].first + i];
    x_.work(1);
    const Expr e = x_.derive(item.expr, byte);
    if (e == kNothing || !x_.alive(e)) continue;
    if (e != kEpsilon) ways_.push_back({e, item.stack});
    if (x_.nullable(e)) complete(item.stack);
  }
  resume_all();
  const State to = close(accepting_);
  Row& row = *states_[s].row;
  const unsigned first = row.edges.last(byte), end = byte == 255 ? 256 : row.edges.next(byte + 1u);
  for (unsigned b = first; b < end; ++b) row.to[b] = to;
  return to;
}

// The state of the ways that the step has found.
Automaton::State Automaton::close(bool accepts) {
  if (x_.exhausted()) fail(Limit::expressions);
  if (failed_) return kDead;
  scratch_.clear();
  for (const OpenItem& way : ways_) scratch_.push_back({way.expr, closed(way.parent)});
  return intern_state(scratch_, accepts);
}

Automaton::Parent Automaton::push(const Frame& frame, Parent parent) {
  if ((parent & kOpen) == 0) {
    Frame whole = frame;
    whole.parent = parent;
    single_.assign(1, intern_frame(whole));
    return intern_stack(single_);
  }
  if (open_count_ == open_.size()) open_.emplace_back();
  OpenStack& open = open_[open_count_];
  open.is_frame = true;
  open.frame = frame;
  open.parents.assign(1, parent);
  open.closed = kNone;
  return kOpen | static_cast<uint32_t>(open_count_++);
}

Automaton::Stack Automaton::closed(Parent parent) {
  if ((parent & kOpen) == 0) return parent;
  const size_t index = parent & ~kOpen;
  if (open_[index].closed != kNone) return open_[index].closed;
  std::vector<uint32_t> frames;
  if (open_[index].is_frame) {
    Frame frame = open_[index].frame;
    frame.parent = closed(open_[index].parents[0]);
    frames.push_back(intern_frame(frame));
  } else if (open_[index].parents.size() == 1) {
    return open_[index].closed = closed(open_[index].parents[0]);
  } else {
    for (const Parent p : open_[index].parents) {
      const Range r = stacks_[closed(p)];
      frames.insert(frames.end(), stack_frames_.begin() + r.first, stack_frames_.begin() + r.first + r.count);
    }
  }
  return open_[index].closed = intern_stack(frames);
}

// Whatever the stack waits for is complete. For a rule that this step entered, its callers have seen to that.
void Automaton::complete(Parent parent) {
  if ((parent & kOpen) != 0 || stack_step_[parent] == step_) return;
  stack_step_[parent] = step_;
  const Range range = stacks_[parent];
  for (uint32_t i = 0; i < range.count; ++i) {
    const uint32_t f = stack_frames_[range.first + i];
    if (frame_step_[f] == step_) continue;
    frame_step_[f] = step_;
    if (frames_[f].node == kNone) {
      accepting_ = true;
    } else {
      agenda_.push_back(f);
    }
  }
  if (agenda_.size() > kMaxAgenda) fail(Limit::items);
}

void Automaton::resume_all() {
  while (!agenda_.empty() && !failed_) {
    const Frame frame = frames_[agenda_.back()];
    agenda_.pop_back();
    x_.work(1);
    if (x_.exhausted()) return fail(Limit::expressions);
    resume(frame);
  }
  agenda_.clear();
}

void Automaton::resume(const Frame& frame) {
  switch (g_.nodes[frame.node].kind) {
    case Kind::sequence:
      return enter_sequence(frame.node, frame.place, frame.parent);
    case Kind::repeat:
      return enter_repeat(frame.node, frame.place, frame.parent);
    case Kind::list:
      if (frame.place % 2 == 0) return enter_item(frame.node, frame.place / 2, frame.members, frame.parent);
      return after_item(frame.node, frame.place / 2, frame.members, frame.parent);
    case Kind::object: {
      const uint32_t stage = frame.place % 4, index = frame.place / 4;
      if (stage == after_value) return after_member(frame.node, frame.members, frame.parent);
      if (stage != value) return keys(frame.node, frame.members, frame.parent, stage == first_key);
      const ObjectSpec& spec = g_.objects[g_.nodes[frame.node].a];
      const uint32_t members = with_member(spec, frame.members, index);
      enter(spec.members[index].value, push({frame.node, after_value, members}, frame.parent));
      if (g_.nodes[spec.members[index].value].nullable) after_member(frame.node, members, frame.parent);
      return;
    }
    default:
      return;
  }
}

void Automaton::add(Expr e, Parent parent) {
  if (e != kNothing && e != kEpsilon) ways_.push_back({e, parent});
  if (ways_.size() > limits_.items) fail(Limit::items);
}

// Begins a node. Where the node may be empty, the caller goes on after it as well.
void Automaton::enter(NodeId node, Parent parent) {
  if (failed_ || ++depth_ > kMaxDepth) return fail(Limit::depth);
  const GrammarNode& n = g_.nodes[node];
  switch (n.kind) {
    case Kind::leaf:
      add(n.a, parent);
      break;
    case Kind::sequence:
      enter_sequence(node, 0, parent);
      break;
    case Kind::either:
      for (uint32_t i = 0; i < n.kids; ++i) enter(g_.kids[n.a + i], parent);
      break;
    case Kind::repeat:
      enter_repeat(node, 0, parent);
      break;
    case Kind::rule:
      enter_rule(n.a, parent);
      break;
    case Kind::list:
      add(g_.lists[n.a].open, push({node, 0, 0}, parent));
      break;
    case Kind::object:
      add(g_.objects[n.a].open, push({node, first_key, 0}, parent));
      break;
  }
  --depth_;
}

void Automaton::enter_sequence(NodeId node, uint32_t at, Parent parent) {
  const GrammarNode& n = g_.nodes[node];
  for (; at < n.kids; ++at) {
    const NodeId kid = g_.kids[n.a + at];
    enter(kid, at + 1 == n.kids ? parent : push({node, at + 1, 0}, parent));
    if (!g_.nodes[kid].nullable) return;
  }
  complete(parent);
}

void Automaton::enter_repeat(NodeId node, uint32_t count, Parent parent) {
  const GrammarNode& n = g_.nodes[node];
  if (count < n.max) {
    const uint32_t then = n.max == kUnbounded ? std::min(count + 1, n.min) : count + 1;
    enter(g_.kids[n.a], then == n.max ? parent : push({node, then, 0}, parent));
  }
  if (count >= n.min) complete(parent);
}

void Automaton::enter_rule(RuleId rule, Parent parent) {
  if (rule_step_[rule] == step_) {
    std::vector<Parent>& parents = open_[rule_open_[rule]].parents;
    if (std::find(parents.begin(), parents.end(), parent) == parents.end()) parents.push_back(parent);
    return;
  }
  rule_step_[rule] = step_;
  if (open_count_ == open_.size()) open_.emplace_back();
  const size_t index = open_count_++;
  rule_open_[rule] = static_cast<uint32_t>(index);
  open_[index].is_frame = false;
  open_[index].parents.assign(1, parent);
  open_[index].closed = kNone;
  enter(g_.rules[rule].body, kOpen | static_cast<uint32_t>(index));
}

}  // namespace switchyard::constrain
