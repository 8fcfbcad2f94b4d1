// SPDX-License-Identifier: Apache-2.0
#include "core/serve/prefix_tree.h"

#include <algorithm>

namespace switchyard {
namespace {

size_t common_length(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t most = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(most), b.begin()).first -
                             a.begin());
}

// The edge to `node` is cut after `length` tokens, where a new node begins.
PrefixNode* split_edge(PrefixNode* node, size_t length) {
  PrefixNode* const parent = node->parent;
  std::unique_ptr<PrefixNode>& place = parent->children[node->edge.front()];
  std::unique_ptr<PrefixNode> lower = std::move(place);
  const auto cut = lower->edge.begin() + static_cast<ptrdiff_t>(length);
  auto upper = std::make_unique<PrefixNode>();
  upper->parent = parent;
  upper->edge.assign(lower->edge.begin(), cut);
  lower->edge.erase(lower->edge.begin(), cut);
  lower->parent = upper.get();
  upper->children[lower->edge.front()] = std::move(lower);
  place = std::move(upper);
  return place.get();
}

// A node that keeps nothing and has one child becomes a part of the child's edge.
void merge_down(PrefixNode* node) {
  std::unique_ptr<PrefixNode> child = std::move(node->children.begin()->second);
  child->edge.insert(child->edge.begin(), node->edge.begin(), node->edge.end());
  child->parent = node->parent;
  std::unique_ptr<PrefixNode>& place = node->parent->children[child->edge.front()];
  place = std::move(child);  // which frees `node`
}

size_t count_nodes(const PrefixNode& node) {
  size_t n = 0;
  for (const auto& [token, child] : node.children) n += 1 + count_nodes(*child);
  return n;
}

}  // namespace

PrefixTree::Match PrefixTree::find(std::span<const int32_t> tokens) const {
  Match match;
  const PrefixNode* node = &root_;
  while (match.common < tokens.size()) {
    const auto next = node->children.find(tokens[match.common]);
    if (next == node->children.end()) break;
    node = next->second.get();
    const size_t length = common_length(node->edge, tokens.subspan(match.common));
    match.common += length;
    if (length < node->edge.size()) break;
    if (node->kept != nullptr) match.kept = node->kept;
  }
  return match;
}

PrefixNode* PrefixTree::at(std::span<const int32_t> tokens) {
  PrefixNode* node = &root_;
  while (!tokens.empty()) {
    std::unique_ptr<PrefixNode>& place = node->children[tokens.front()];
    if (place == nullptr) {
      place = std::make_unique<PrefixNode>();
      place->parent = node;
      place->edge.assign(tokens.begin(), tokens.end());
      return place.get();
    }
    node = place.get();
    const size_t length = common_length(node->edge, tokens);
    if (length < node->edge.size()) node = split_edge(node, length);
    tokens = tokens.subspan(length);
  }
  return node;
}

void PrefixTree::prune(PrefixNode* node) {
  while (node->parent != nullptr && node->kept == nullptr) {
    PrefixNode* const parent = node->parent;
    if (node->children.size() == 1) return merge_down(node);
    if (!node->children.empty()) return;
    parent->children.erase(node->edge.front());
    node = parent;
  }
}

size_t PrefixTree::nodes() const { return count_nodes(root_); }

}  // namespace switchyard
