// SPDX-License-Identifier: Apache-2.0
// PrefixTree: the beginnings of texts that the prefix cache keeps states for, as a radix tree over token ids: an edge
// has a run of tokens, and a node may have states (Kept) of the tokens from the root to it.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/checkpoint.h"

namespace switchyard {

struct PrefixNode;

// The states after a node's tokens: on the devices, or in host memory.
struct Kept {
  PrefixNode* node = nullptr;
  std::string scope;
  uint32_t position = 0;
  std::unique_ptr<StateCheckpoint> states;  // NULL: in `host`, or in `saved`
  std::string host;                         // Session::snapshot
  std::string_view saved = {};              // the same, in the cache file; until it turns out to be damaged
  std::list<Kept>::iterator self;           // its place in the order of use
};

struct PrefixNode {
  PrefixNode* parent = nullptr;
  std::vector<int32_t> edge;                                // from the parent; empty at the root alone
  std::map<int32_t, std::unique_ptr<PrefixNode>> children;  // by the first token of their edges
  Kept* kept = nullptr;
};

class PrefixTree {
 public:
  struct Match {
    Kept* kept = nullptr;  // the longest that is a beginning of the tokens; NULL: none
    size_t common = 0;     // of the tokens, with the text in the tree that has the most in common with them
  };
  Match find(std::span<const int32_t> tokens) const;
  // The node after these tokens, made if there is none.
  PrefixNode* at(std::span<const int32_t> tokens);
  // Removes a node that keeps nothing, as far as no text needs it.
  void prune(PrefixNode* node);
  bool empty() const { return root_.children.empty(); }
  size_t nodes() const;  // besides the root

 private:
  PrefixNode root_;
};

}  // namespace switchyard
