// SPDX-License-Identifier: Apache-2.0
// The automaton's masks: which tokens may follow.
#include <algorithm>

#include "core/constrain/automaton.h"

namespace switchyard::constrain {

// Sets the bits of those tokens of the tree that may follow.
void Automaton::walk(std::span<const TrieNode> trie, State s, std::span<uint32_t> mask) {
  std::array<State, 256> path;  // the state after each beginning of the text
  path[0] = s;
  for (uint32_t i = 0; i < trie.size();) {
    const TrieNode node = trie[i];
    const uint32_t depth = node.depth();
    const State to = next(path[depth - 1], node.byte());
    if (to == kDead) {
      i = node.next();
      continue;
    }
    path[depth] = to;
    const uint32_t token = node.token();
    if (token != TrieNode::kNoToken) mask[token / 32] |= 1u << token % 32;
    ++i;
  }
}

// Items inside a JSON string that takes any characters allow most of the vocabulary. These tokens are known in
// advance; of the others few can follow.
void Automaton::compute_mask(State s, std::span<uint32_t> mask) {
  std::vector<Item> others;
  bool inside = false;
  for (const Item& item : items(s)) {
    const Expressions::Room room = x_.json_room(item.expr);
    if (room.exact && room.characters > 0) {
      trie_.allow_plain(room.characters, mask);
      inside = true;
    } else {
      others.push_back(item);
    }
  }
  if (inside) walk(trie_.not_plain(), s, mask);
  if (!others.empty()) {
    if (inside) s = intern_state(others, false);
    walk(trie_.all(), s, mask);
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
