// SPDX-License-Identifier: Apache-2.0
// Automaton: follows a grammar byte by byte, through states that are built when they are first reached.
//
// A state is what a text can still become: a set of items (an expression, and the stack to go on with when a text of it
// is complete). A stack is a set of frames: a place in the grammar, and the stack of what surrounds it. Equal
// expressions, frames, stacks and states have equal numbers, so that a text that comes back to a state finds its
// transitions and its mask there. The sets of frames merge all ways to get to a rule at one place of the text, as
// Earley's item sets (1970) and graph-structured stacks (Tomita, 1985) do: an ambiguous grammar has no more items than
// rules times places.
//
// Not thread-safe, but for `mutex`, which whoever shares it holds.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/constrain/grammar.h"
#include "core/constrain/utf8_ranges.h"
#include "core/text/token_trie.h"

namespace switchyard::constrain {

struct AutomatonLimits {
  size_t memory_bytes = size_t{64} << 20;  // beyond this it counts as full
  uint32_t new_states = 1 << 16;           // in one operation
  uint32_t items = 1 << 16;                // of a state
  uint64_t work = 1 << 20;                 // in one operation, in steps of some ten nanoseconds
};

class Automaton {
 public:
  using State = uint32_t;
  static constexpr State kDead = 0;

  // Both outlive it.
  Automaton(const Grammar& grammar, const TokenTrie& trie, const AutomatonLimits& limits);

  State start() const { return start_; }
  State next(State s, uint8_t byte) {
    const Row* row = states_[s].row;
    if (row != nullptr && row->to[byte] != kUnknown) return row->to[byte];
    return step(s, byte);
  }
  // The text that leads to `s` has just ended a string of a list: the state in which it is no item of that list any
  // more, if its items must differ.
  State saw_item(State s, std::string_view text);
  // Whether the state is in a list of strings that must differ. A token with several strings in it may then be in a
  // mask and not be possible: it has to be tried, with saw_item.
  bool in_unique_list(State s) const;
  // The text so far may end here.
  bool accepts(State s) const { return states_[s].accepts; }
  // The only byte that can follow; -1 if there are several, or none.
  int only_byte(State s);
  bool ends(State s);  // no byte can follow

  // Sets the bits of the tokens that may follow.
  void allow(State s, std::span<uint32_t> mask);

  // A limit was reached: the answers since then are worthless, and so is the automaton.
  bool failed() const { return failed_; }
  // Which one, as the rest of a sentence: "it has more than 65536 alternatives at once; ...".
  std::string fault() const;
  bool full() const { return failed_ || memory_bytes() > limits_.memory_bytes; }
  // Before each mask or token: it may make so many states, and take so long.
  void begin_operation() {
    new_states_ = 0;
    x_.allow_work(limits_.work);
  }
  uint32_t new_states() const { return new_states_; }  // since then
  bool used_a_quarter() const {                        // of what it may make and take
    return failed_ || new_states_ > limits_.new_states / 4 || x_.work_used() > limits_.work / 4;
  }
  size_t memory_bytes() const;
  size_t states() const { return states_.size(); }

  std::mutex mutex;

 private:
  static constexpr uint32_t kUnknown = UINT32_MAX;
  static constexpr uint32_t kOpen = 1u << 31;  // marks the number of an open stack
  static constexpr size_t kMaxMasks = 256;
  static constexpr size_t kMaxTexts = 500;  // of a list whose items must differ
  static constexpr size_t kTextShare = 64;  // of the memory, for the bytes of the sets of one list: one for each item
  using Stack = uint32_t;
  using Parent = uint32_t;  // a stack; or, with kOpen, one that this step is still building

  struct Item {
    Expr expr = 0;
    uint32_t stack = 0;
    auto operator<=>(const Item&) const = default;
  };
  // Where to go on: a node; a position, count or stage in it; for an object, its members so far; for a list of
  // strings that must differ, these.
  struct Frame {
    NodeId node = kNone;
    uint32_t place = 0, members = 0;
    Stack parent = 0;
    bool operator==(const Frame&) const = default;
  };
  // Transitions. Bytes from one edge to before the next have the same.
  struct Row {
    std::array<State, 256> to;
    ByteSet edges;
  };
  struct StateData {
    Row* row = nullptr;             // once one is known
    uint32_t first = 0, count = 0;  // items
    uint32_t mask = kNone;
    bool accepts = false;
  };
  struct Range {
    uint32_t first = 0, count = 0;
  };
  struct NodeRange {
    uint32_t begin = 0, end = 0;  // of a tree of tokens
  };
  // Which tokens an expression allows, whatever surrounds it: those that stay within it; and exits, the nodes of the
  // tree where it may end and tokens go on. A leaf with gaps is another one without these tokens and exits.
  struct Leaf {
    uint32_t base = kNone;              // itself, if it has no gaps
    int64_t plain = 0;                  // all tokens of at most so many plain characters
    std::vector<uint32_t> tokens = {};  // the others
    TokenMask mask = {};                // or, where they are many
    std::vector<uint32_t> exits = {};
    std::vector<uint32_t> gap = {}, gap_exits = {};
    std::span<const TrieNode> trie(const TokenTrie& t) const { return plain > 0 ? t.not_plain() : t.all(); }
  };
  // An item of a state, for its mask.
  struct Way {
    uint32_t leaf = 0;
    Stack stack = 0;
  };
  // A stack under construction: a frame on another; or the union of stacks, for a rule that this step entered.
  struct OpenStack {
    bool is_frame = false;
    Frame frame = {};
    std::vector<Parent> parents = {};
    Stack closed = kNone;
  };
  // The items that a list has so far, and the bytes of the sets on the way to this one.
  struct Texts {
    std::vector<std::string> sorted = {};
    size_t bytes = 0;
  };
  // The members that an object has so far.
  struct Members {
    uint32_t count = 0;
    std::vector<uint64_t> seen = {};  // of those that occur once
    bool operator==(const Members&) const = default;
  };
  enum Stage : uint32_t { first_key, next_key, after_value, value };  // of an object; `value` + 4 * its index

  State step(State s, uint8_t byte);
  State close(bool accepts);
  State intern_state(std::vector<Item>& items, bool accepts);
  Stack intern_stack(std::vector<uint32_t>& frames);
  uint32_t intern_frame(const Frame& frame);
  uint32_t intern_members(Members members);
  Parent push(const Frame& frame, Parent parent);
  Stack closed(Parent parent);
  void complete(Parent parent);
  void resume_all();
  void resume(const Frame& frame);
  void enter(NodeId node, Parent parent);
  void enter_sequence(NodeId node, uint32_t at, Parent parent);
  void enter_repeat(NodeId node, uint32_t count, Parent parent);
  void enter_rule(RuleId rule, Parent parent);
  void enter_item(NodeId node, uint32_t count, uint32_t texts, Parent parent);
  void after_item(NodeId node, uint32_t count, uint32_t texts, Parent parent);
  Expr unused_text(Expr all, uint32_t texts);
  uint32_t with_text(uint32_t texts, std::string_view text);
  bool is_unique_list(NodeId node) const;
  void keys(NodeId node, uint32_t members, Parent parent, bool first);
  void after_member(NodeId node, uint32_t members, Parent parent);
  uint32_t with_member(const ObjectSpec& spec, uint32_t members, uint32_t index);
  uint32_t missing(const ObjectSpec& spec, const Members& members) const;
  void add(Expr e, Parent parent);
  std::span<const Item> items(State s) const { return {items_.data() + states_[s].first, states_[s].count}; }
  void begin_step();
  // Calls `visit` with each node of a stretch that may follow the state, and the state after it.
  template <class Visit>
  void walk(std::span<const TrieNode> trie, NodeRange range, State s, Visit visit) {
    std::array<State, 257> path;  // the state after each beginning of the text
    if (range.begin >= range.end) return;
    const uint32_t depth = trie[range.begin].depth();
    path[0] = s;
    for (uint32_t i = range.begin; i < range.end;) {
      const TrieNode node = trie[i];
      const uint32_t at = node.depth() - depth;
      const State to = next(path[at], node.byte());
      if (to == kDead) {
        i = node.next();
        continue;
      }
      path[at + 1] = to;
      visit(i, to);
      ++i;
    }
  }
  uint32_t child(uint32_t node, uint8_t byte) const;
  State alone(Expr e);
  State after(Stack stack);
  State after_all(std::span<const Way> ways, uint32_t node);
  bool all_can_follow(State s, const Utf8Range& range, size_t at, std::vector<State>& found);
  bool takes_plain(State s);
  uint32_t leaf(Expr e);
  uint32_t add_leaf(Leaf made);
  void plain_leaf(Expr e, Leaf& out);
  void gap_leaf(Expr gaps, Leaf& out);
  void literal_leaf(const Expressions::JsonLiteral& literal, Leaf& out);
  void escaped_character(uint32_t node, uint8_t c, std::vector<uint32_t>& found, Leaf& out);
  void stay(std::span<const TrieNode> trie, NodeRange range, State s, Leaf& out);
  void allow_below(std::span<const TrieNode> trie, uint32_t node, State s, std::span<uint32_t> mask);
  void allow_ways(std::span<const Way> ways, std::span<uint32_t> mask);
  bool many_patterns(std::span<const Item> all);
  void allow_together(std::vector<Item> some, std::span<uint32_t> mask);
  void compute_mask(State s, std::span<uint32_t> mask);
  enum class Limit : uint8_t { none, states, items, depth, expressions, texts };
  void fail(Limit limit) {
    if (!failed_) limit_ = limit;
    failed_ = true;
  }

  const Grammar& g_;
  const TokenTrie& trie_;
  AutomatonLimits limits_;
  Expressions x_;  // the grammar's, and their derivatives
  std::vector<StateData> states_;
  std::vector<Item> items_;
  std::deque<Row> rows_;  // which stay where they are: moving them would take milliseconds
  std::vector<Frame> frames_;
  std::vector<Range> stacks_;
  std::vector<uint32_t> stack_frames_;
  std::vector<Members> members_;
  std::vector<Texts> texts_ = {{}};
  std::map<std::vector<std::string>, uint32_t> text_index_ = {{{}, 0}};
  size_t text_bytes_ = 0;
  IndexTable state_table_, frame_table_, stack_table_, member_table_;
  std::vector<TokenMask> masks_;
  std::vector<State> mask_owner_;
  size_t next_mask_ = 0;
  std::deque<Leaf> leaves_;
  std::unordered_map<Expr, uint32_t> leaf_index_;
  size_t leaf_bytes_ = 0;
  std::vector<State> after_;  // each stack
  std::array<uint32_t, 256> roots_;
  TokenMask part_;
  State start_ = kDead;
  uint32_t new_states_ = 0;
  bool failed_ = false;
  Limit limit_ = Limit::none;

  // Of one step.
  struct OpenItem {
    Expr expr = 0;
    Parent parent = 0;
  };
  std::vector<OpenItem> ways_;
  std::vector<OpenStack> open_;
  size_t open_count_ = 0;
  std::vector<uint32_t> agenda_;                   // frames to resume
  std::vector<uint32_t> frame_step_, stack_step_;  // the step that last met each
  std::vector<uint32_t> rule_step_, rule_open_;    // the step that last entered each rule, and its open stack
  std::vector<Item> scratch_;
  std::vector<uint32_t> single_;
  uint32_t step_ = 0, depth_ = 0;
  bool accepting_ = false;
};

}  // namespace switchyard::constrain
