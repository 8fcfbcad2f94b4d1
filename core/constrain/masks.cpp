// SPDX-License-Identifier: Apache-2.0
// The automaton's masks: which tokens may follow.
#include <algorithm>
#include <functional>

#include "core/constrain/automaton.h"

namespace switchyard::constrain {

void Automaton::allow_below(std::span<const TrieNode> trie, uint32_t node, State s, std::span<uint32_t> mask) {
  walk(trie, {node + 1, trie[node].next()}, s, [&](uint32_t i, State) {
    const uint32_t token = trie[i].token();
    if (token != TrieNode::kNoToken) mask[token / 32] |= 1u << token % 32;
  });
}

// What may follow after any of these items, but for those that have no exit at this node.
Automaton::State Automaton::after_all(std::span<const Way> ways, uint32_t node) {
  std::vector<State> states;
  for (const Way& way : ways) {
    const std::vector<uint32_t>& without = leaves_[way.leaf].gap_exits;
    if (std::binary_search(without.begin(), without.end(), node)) continue;
    const State to = after(way.stack);
    if (states_[to].count > 0) states.push_back(to);
  }
  std::sort(states.begin(), states.end());
  states.erase(std::unique(states.begin(), states.end()), states.end());
  if (states.empty()) return kDead;
  if (states.size() == 1) return states[0];
  std::vector<Item> all;
  for (const State s : states) {
    const auto some = items(s);
    all.insert(all.end(), some.begin(), some.end());
  }
  return intern_state(all, false);
}

// Items with one leaf, or with leaves that have the same one but for gaps.
void Automaton::allow_ways(std::span<const Way> ways, std::span<uint32_t> mask) {
  const Leaf& base = leaves_[leaves_[ways[0].leaf].base];
  std::vector<uint32_t> gap = leaves_[ways[0].leaf].gap, both, exceptions;
  for (const Way& way : ways) {
    const Leaf& leaf = leaves_[way.leaf];
    both.clear();
    std::set_intersection(gap.begin(), gap.end(), leaf.gap.begin(), leaf.gap.end(), std::back_inserter(both));
    gap.swap(both);
    exceptions.insert(exceptions.end(), leaf.gap_exits.begin(), leaf.gap_exits.end());
  }
  std::span<uint32_t> to = mask;
  if (!gap.empty()) {
    part_.assign(trie_.mask_words(), 0);
    to = part_;
  }
  trie_.allow_plain(base.plain, to);
  for (size_t i = 0; i < base.mask.size(); ++i) to[i] |= base.mask[i];
  for (const uint32_t token : base.tokens) to[token / 32] |= 1u << token % 32;
  if (!gap.empty()) {
    for (const uint32_t token : gap) part_[token / 32] &= ~(1u << token % 32);
    std::transform(part_.begin(), part_.end(), mask.begin(), mask.begin(), std::bit_or<>());
  }
  if (base.exits.empty()) return;
  std::sort(exceptions.begin(), exceptions.end());
  const State common = after_all(ways, kNone);
  const std::span<const TrieNode> trie = base.trie(trie_);
  for (size_t i = 0, e = 0; i < base.exits.size() && common != kDead; ++i) {
    const uint32_t node = base.exits[i];
    while (e < exceptions.size() && exceptions[e] < node) ++e;
    if (e == exceptions.size() || exceptions[e] != node) {
      allow_below(trie, node, common, mask);
      continue;
    }
    const State some = after_all(ways, node);
    if (some != kDead) allow_below(trie, node, some, mask);
  }
}

// One walk for several items.
void Automaton::allow_together(std::vector<Item> some, std::span<uint32_t> mask) {
  const State s = intern_state(some, false);
  const std::span<const TrieNode> all = trie_.all();
  walk(all, {0, static_cast<uint32_t>(all.size())}, s, [&](uint32_t i, State) {
    const uint32_t token = all[i].token();
    if (token != TrieNode::kNoToken) mask[token / 32] |= 1u << token % 32;
  });
}

// Whether new leaves would take more time than one walk for all items.
bool Automaton::many_patterns(std::span<const Item> all) {
  constexpr size_t kManyLeaves = 2048;
  size_t fresh = 0, patterns = 0;
  for (const Item& item : all) {
    if (leaf_index_.contains(item.expr)) continue;
    ++fresh;
    patterns += x_.json_pattern(item.expr) ? 1 : 0;
  }
  return patterns > 1 || fresh > kManyLeaves;
}

void Automaton::compute_mask(State s, std::span<uint32_t> mask) {
  const std::vector<Item> all(items(s).begin(), items(s).end());  // a copy: leaves add to the table
  const bool together = many_patterns(all);
  std::vector<Way> ways;
  std::vector<Item> rest;
  for (const Item& item : all) {
    if (failed_) return;
    if (together && !leaf_index_.contains(item.expr)) {
      rest.push_back(item);
    } else {
      ways.push_back({leaf(item.expr), item.stack});
    }
  }
  if (!rest.empty()) allow_together(std::move(rest), mask);
  const auto base = [&](const Way& way) { return leaves_[way.leaf].base; };
  std::sort(ways.begin(), ways.end(), [&](const Way& a, const Way& b) { return base(a) < base(b); });
  for (size_t i = 0, end; i < ways.size() && !failed_; i = end) {
    for (end = i + 1; end < ways.size() && base(ways[end]) == base(ways[i]);) ++end;
    allow_ways(std::span(ways).subspan(i, end - i), mask);
  }
}
void Automaton::allow(State s, std::span<uint32_t> mask) {
  if (s == kDead || failed_) return;
  uint32_t known = states_[s].mask;
  if (known == kNone) {
    TokenMask fresh(trie_.mask_words());
    compute_mask(s, fresh);
    for (const uint32_t token : trie_.long_tokens()) {
      State at = s;
      for (const char c : trie_.piece(token)) at = next(at, static_cast<uint8_t>(c));
      if (at != kDead) fresh[token / 32] |= 1u << token % 32;
    }
    for (const auto& [one, other] : trie_.twins()) {
      if ((fresh[one / 32] >> one % 32 & 1) != 0) fresh[other / 32] |= 1u << other % 32;
    }
    if (failed_) return;
    // The oldest one makes room.
    if (masks_.size() < kMaxMasks) {
      masks_.emplace_back();
      mask_owner_.push_back(kDead);
    }
    known = static_cast<uint32_t>(next_mask_++ % kMaxMasks);
    if (mask_owner_[known] != kDead) states_[mask_owner_[known]].mask = kNone;
    mask_owner_[known] = s;
    masks_[known] = std::move(fresh);
    states_[s].mask = known;
  }
  const TokenMask& from = masks_[known];
  for (size_t i = 0; i < std::min(mask.size(), from.size()); ++i) mask[i] |= from[i];
}

int Automaton::only_byte(State s) {
  if (s == kDead) return -1;
  int only = -1;
  for (unsigned b = 0; b < 256; ++b) {
    if (next(s, static_cast<uint8_t>(b)) == kDead) continue;
    if (only >= 0) return -1;
    only = static_cast<int>(b);
  }
  return only;
}

bool Automaton::ends(State s) {
  for (unsigned b = 0; b < 256; ++b) {
    if (next(s, static_cast<uint8_t>(b)) != kDead) return false;
  }
  return true;
}

}  // namespace switchyard::constrain
