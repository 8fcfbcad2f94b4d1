// SPDX-License-Identifier: Apache-2.0
#include "core/text/bpe.h"

#include <queue>

namespace switchyard {
namespace {

// Symbols form a linked list over the array, so that a merge costs no moving.
struct Symbol {
  int32_t id;
  int32_t previous, next;  // -1: none
  bool alive;
};

// A pair that may be merged, as it was when it was found; stale when either side has changed since.
struct Candidate {
  uint32_t rank;
  int32_t left, right;        // positions
  int32_t left_id, right_id;  // what stood there
  int32_t merged;
  bool operator>(const Candidate& o) const { return rank != o.rank ? rank > o.rank : left > o.left; }
};

}  // namespace

void Bpe::add_merge(int32_t left, int32_t right, int32_t merged) { merges_[key(left, right)] = {next_rank_++, merged}; }

void Bpe::encode(std::string_view bytes, std::vector<int32_t>& ids) const {
  std::vector<Symbol> symbols;
  symbols.reserve(bytes.size());
  for (const char c : bytes) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id < 0) continue;
    const auto at = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, at - 1, at + 1, true});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;

  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const auto it = merges_.find(key(symbols[left].id, symbols[right].id));
    if (it == merges_.end()) return;
    queue.push({it->second.rank, left, right, symbols[left].id, symbols[right].id, it->second.id});
  };
  for (int32_t i = 0; i + 1 < static_cast<int32_t>(symbols.size()); ++i) consider(i, i + 1);
  while (!queue.empty()) {
    const Candidate c = queue.top();
    queue.pop();
    Symbol& left = symbols[c.left];
    Symbol& right = symbols[c.right];
    if (!left.alive || !right.alive || left.id != c.left_id || right.id != c.right_id || left.next != c.right) continue;
    left.id = c.merged;
    left.next = right.next;
    right.alive = false;
    if (right.next >= 0) symbols[right.next].previous = c.left;
    consider(left.previous, c.left);
    consider(c.left, left.next);
  }
  for (const Symbol& s : symbols) {
    if (s.alive) ids.push_back(s.id);
  }
}

}  // namespace switchyard
