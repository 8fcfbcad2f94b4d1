// SPDX-License-Identifier: Apache-2.0
// Which tokens an expression allows, whatever surrounds it, and where they go on after its end.
#include <algorithm>

#include "core/constrain/automaton.h"
#include "core/constrain/text_scanner.h"
#include "core/constrain/utf8_ranges.h"

namespace switchyard::constrain {
namespace {

constexpr size_t kFewTokens = 2048;  // that a list takes less room for than a mask

// Those that a JSON string takes as they are, and that no `.` leaves out.
const std::vector<Utf8Range>& plain_characters() {
  static const std::vector<Utf8Range> all = [] {
    std::vector<Utf8Range> out;
    for (const auto& [low, high] : {std::pair{0x20u, 0x21u}, {0x23u, 0x5Bu}, {0x5Du, 0x2027u}, {0x202Au, 0x10FFFFu}}) {
      for (const Utf8Range& range : utf8_ranges(low, high)) out.push_back(range);
    }
    return out;
  }();
  return all;
}

}  // namespace

// The first node below `node` (of all, for kNone) whose last byte is this one; kNone if there is none.
uint32_t Automaton::child(uint32_t node, uint8_t byte) const {
  const std::span<const TrieNode> all = trie_.all();
  if (node == kNone) return roots_[byte];
  for (uint32_t i = node + 1; i < all[node].next(); i = all[i].next()) {
    if (all[i].byte() == byte) return i;
  }
  return kNone;
}

// The state of what may follow in this expression alone.
Automaton::State Automaton::alone(Expr e) {
  constexpr Stack kBottom = 0;
  scratch_.assign(1, {e, kBottom});
  return intern_state(scratch_, x_.nullable(e));
}

// The state after whatever the stack waits for.
Automaton::State Automaton::after(Stack stack) {
  if (after_.size() <= stack) after_.resize(stacks_.size(), kUnknown);
  if (after_[stack] != kUnknown) return after_[stack];
  begin_step();
  complete(stack);
  resume_all();
  const State to = close(accepting_);
  after_[stack] = to;
  return to;
}

// Whether each of these characters can follow; adds the states after them to `found`.
bool Automaton::all_can_follow(State s, const Utf8Range& range, size_t at, std::vector<State>& found) {
  if (at == range.length) {
    if (std::find(found.begin(), found.end(), s) == found.end()) found.push_back(s);
    return true;
  }
  for (unsigned b = range.bytes[at].first; b <= range.bytes[at].second;) {
    const State to = next(s, static_cast<uint8_t>(b));
    if (to == kDead || !all_can_follow(to, range, at + 1, found)) return false;
    b = b == 255 ? 256 : states_[s].row->edges.next(b + 1);
  }
  return true;
}

// Whether any text of plain characters can follow.
bool Automaton::takes_plain(State s) {
  constexpr size_t kMost = 12;  // states to look at
  std::vector<State> found = {s};
  for (size_t at = 0; at < found.size(); ++at) {
    if (found.size() > kMost || failed_) return false;
    for (const Utf8Range& range : plain_characters()) {
      if (!all_can_follow(found[at], range, 0, found)) return false;
    }
  }
  return true;
}

uint32_t Automaton::leaf(Expr e) {
  if (const auto known = leaf_index_.find(e); known != leaf_index_.end()) return known->second;
  uint32_t index;
  if (const Expr same = x_.with_short_counts(e, trie_.longest()); same != e) {
    index = leaf(same);
  } else {
    Leaf made;
    if (const auto literal = x_.json_literal(e)) {
      literal_leaf(*literal, made);
    } else if (const auto parts = x_.without_gaps(e)) {
      made.base = leaf(parts->whole);
      gap_leaf(parts->gaps, made);
    } else {
      plain_leaf(e, made);
    }
    index = add_leaf(std::move(made));
  }
  leaf_index_[e] = index;
  return index;
}

uint32_t Automaton::add_leaf(Leaf made) {
  if (made.base != kNone && made.gap.empty() && made.gap_exits.empty()) return made.base;
  const auto index = static_cast<uint32_t>(leaves_.size());
  if (made.base == kNone) made.base = index;
  if (made.tokens.size() > kFewTokens) {
    made.mask.resize(trie_.mask_words());
    for (const uint32_t token : made.tokens) made.mask[token / 32] |= 1u << token % 32;
    made.tokens.clear();
    made.tokens.shrink_to_fit();
  }
  leaf_bytes_ +=
      sizeof(Leaf) + 64 +
      4 * (made.tokens.size() + made.mask.size() + made.exits.size() + made.gap.size() + made.gap_exits.size());
  leaves_.push_back(std::move(made));
  return index;
}

void Automaton::plain_leaf(Expr e, Leaf& out) {
  const State s = alone(e);
  const Expressions::Room room = x_.json_room(e);
  if (room.exact && room.characters > 0) {
    out.plain = room.characters;
  } else if (takes_plain(s)) {
    out.plain = INT64_MAX;
  }
  const std::span<const TrieNode> trie = out.trie(trie_);
  stay(trie, {0, static_cast<uint32_t>(trie.size())}, s, out);
}

// Adds the tokens of a stretch of the tree that stay within the expression of the state, and the exits.
void Automaton::stay(std::span<const TrieNode> trie, NodeRange range, State s, Leaf& out) {
  walk(trie, range, s, [&](uint32_t i, State to) {
    const uint32_t token = trie[i].token();
    if (token != TrieNode::kNoToken) out.tokens.push_back(token);
    if (states_[to].accepts && i + 1 < trie[i].next()) out.exits.push_back(i);
  });
}

// What the names that an object's other members must not have take away.
void Automaton::gap_leaf(Expr gaps, Leaf& out) {
  const std::span<const TrieNode> trie = leaves_[out.base].trie(trie_);
  const State s = alone(gaps);
  walk(trie, {0, static_cast<uint32_t>(trie.size())}, s, [&](uint32_t i, State to) {
    const auto in = items(to);
    if (std::any_of(in.begin(), in.end(), [&](const Item& item) { return x_.has_json(item.expr); })) return;
    const uint32_t token = trie[i].token();
    if (token != TrieNode::kNoToken) out.gap.push_back(token);
    if (states_[to].accepts && i + 1 < trie[i].next()) out.gap_exits.push_back(i);
  });
  std::sort(out.gap.begin(), out.gap.end());
}

// A text that is known: without states for all its beginnings.
void Automaton::literal_leaf(const Expressions::JsonLiteral& literal, Leaf& out) {
  const std::span<const TrieNode> all = trie_.all();
  const auto take = [&](uint32_t node) {
    if (node != kNone && all[node].token() != TrieNode::kNoToken) out.tokens.push_back(all[node].token());
    return node;
  };
  uint32_t start = kNone;
  for (const char c : literal.before) {
    start = take(child(start, static_cast<uint8_t>(c)));
    if (start == kNone) return;
  }
  x_.work(literal.text.size() + 1);
  std::vector<uint32_t> open = {start}, then;  // the nodes that have all characters so far
  for (const char c : literal.text) {
    then.clear();
    for (const uint32_t node : open) {
      if (const uint32_t to = take(child(node, static_cast<uint8_t>(c))); to != kNone) then.push_back(to);
      const uint32_t escape = take(child(node, '\\'));
      if (escape == kNone) continue;
      if (c == '/') {
        if (const uint32_t to = take(child(escape, '/')); to != kNone) then.push_back(to);
      }
      escaped_character(escape, static_cast<uint8_t>(c), then, out);
    }
    open.swap(then);
    if (open.empty()) return;
  }
  const State rest = alone(literal.after);
  for (const uint32_t node : open) {
    if (states_[rest].accepts && node != kNone && node + 1 < all[node].next()) out.exits.push_back(node);
    const NodeRange below =
        node == kNone ? NodeRange{0, static_cast<uint32_t>(all.size())} : NodeRange{node + 1, all[node].next()};
    stay(all, below, rest, out);
  }
  std::sort(out.exits.begin(), out.exits.end());
}

// The nodes of \u and four digits for an ASCII character.
void Automaton::escaped_character(uint32_t node, uint8_t c, std::vector<uint32_t>& found, Leaf& out) {
  const std::span<const TrieNode> all = trie_.all();
  std::vector<uint32_t> open, then;
  if (const uint32_t u = child(node, 'u'); u != kNone) open.push_back(u);
  const int digits[] = {0, 0, c >> 4, c & 15};
  for (size_t i = 0; i <= 4; ++i) {
    then.clear();
    for (const uint32_t at : open) {
      if (all[at].token() != TrieNode::kNoToken) out.tokens.push_back(all[at].token());
      if (i == 4) found.push_back(at);
      for (uint32_t k = at + 1; i < 4 && k < all[at].next(); k = all[k].next()) {
        if (hex_digit(static_cast<char>(all[k].byte())) == digits[i]) then.push_back(k);
      }
    }
    open.swap(then);
  }
}

}  // namespace switchyard::constrain
