// SPDX-License-Identifier: Apache-2.0
// The radix tree beside a list of the same texts, which is searched naively.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <random>

#include "core/serve/prefix_tree.h"

namespace switchyard {
namespace {

using Text = std::vector<int32_t>;

size_t common(const Text& a, const Text& b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

TEST(PrefixTree, FindsWhatAListFinds) {
  std::mt19937 random(3);
  PrefixTree tree;
  std::list<Kept> kept;
  std::list<Text> texts;  // of `kept`, in the same order
  for (int round = 0; round < 4000; ++round) {
    Text text(random() % 12);
    for (int32_t& id : text) id = static_cast<int32_t>(random() % 3);
    const auto known = std::find(texts.begin(), texts.end(), text);
    const auto index = std::distance(texts.begin(), known);
    if (random() % 3 == 0 && known != texts.end()) {  // drop it
      const auto it = std::next(kept.begin(), index);
      it->node->kept = nullptr;
      tree.prune(it->node);
      kept.erase(it);
      texts.erase(known);
    } else if (random() % 2 == 0 && known == texts.end() && !text.empty()) {
      Kept& k = kept.emplace_back();
      k.node = tree.at(text);
      ASSERT_EQ(k.node->kept, nullptr);
      k.node->kept = &k;
      k.position = static_cast<uint32_t>(text.size());
      texts.push_back(text);
    }
    size_t longest = 0, most = 0;
    for (const Text& t : texts) {
      most = std::max(most, common(t, text));
      if (common(t, text) == t.size()) longest = std::max(longest, t.size());
    }
    const PrefixTree::Match match = tree.find(text);
    ASSERT_EQ(match.kept == nullptr ? 0 : match.kept->position, longest) << round;
    ASSERT_EQ(match.common, most) << round;
    ASSERT_LE(tree.nodes(), 2 * kept.size()) << "a node that keeps nothing has two children";
    ASSERT_EQ(tree.empty(), kept.empty());
  }
}

}  // namespace
}  // namespace switchyard
