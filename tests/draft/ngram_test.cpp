// SPDX-License-Identifier: Apache-2.0
// The n-gram drafter against a search of the whole text, and its limits.
#include "core/draft/ngram.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "core/draft/speculation.h"

namespace switchyard {
namespace {

std::vector<int32_t> proposed(NgramDrafter& d, uint32_t most) {
  Guesses guesses;
  EXPECT_TRUE(d.propose(most, guesses).ok());
  return guesses.ids();
}

std::vector<int32_t> counting(int32_t first, int32_t n) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < n; ++i) ids.push_back(first + i);
  return ids;
}

TEST(Ngram, DraftsAfterLongRepetitionsOnly) {
  NgramDrafter d({.least = 16});
  d.saw(counting(0, 100));
  d.saw(counting(40, 15));
  EXPECT_TRUE(proposed(d, 8).empty()) << "15 tokens are repeated";
  EXPECT_FALSE(d.may_propose_after(0));
  EXPECT_TRUE(d.may_propose_after(1));
  d.saw(counting(55, 1));
  EXPECT_EQ(proposed(d, 8), counting(56, 8));
  EXPECT_EQ(proposed(d, 40), counting(56, 16)) << "at most as many as were repeated";
  d.saw(counting(56, 8));
  EXPECT_EQ(proposed(d, 40), counting(64, 24));
  d.saw({{7777}});
  EXPECT_TRUE(proposed(d, 8).empty()) << "the repetition has ended";
}

TEST(Ngram, GoesOnWithATextThatRepeatsItself) {
  NgramDrafter d({.least = 8});
  for (int i = 0; i < 8; ++i) d.saw({{1, 2, 3}});
  EXPECT_EQ(proposed(d, 7), (std::vector<int32_t>{1, 2, 3, 1, 2, 3, 1}));
}

TEST(Ngram, TakesTheLatestPlace) {
  NgramDrafter d({.least = 8});
  for (const int32_t after : {100, 200, 300}) {
    d.saw(counting(1, 10));
    d.saw({{after}});
  }
  d.saw(counting(1, 10));
  EXPECT_EQ(proposed(d, 1), std::vector<int32_t>{300});
}

// Whatever it proposes follows, somewhere in the text, the very tokens that the text ends with.
TEST(Ngram, ProposesWhatFollowedTheSameTokens) {
  std::mt19937 random(3);
  uint32_t proposals = 0;
  for (int round = 0; round < 50; ++round) {
    NgramDrafter d({.least = 12, .table_entries = 64});  // so small that places are lost
    std::vector<int32_t> text;
    while (text.size() < 600) {
      std::vector<int32_t> more;
      if (!text.empty() && random() % 3 == 0) {
        const size_t from = random() % text.size(), n = std::min<size_t>(random() % 60, text.size() - from);
        more.assign(text.begin() + static_cast<ptrdiff_t>(from), text.begin() + static_cast<ptrdiff_t>(from + n));
      } else {
        more.push_back(static_cast<int32_t>(random() % 6));
      }
      for (const int32_t id : more) {
        d.saw({&id, 1});
        text.push_back(id);
        const std::vector<int32_t> ids = proposed(d, 4);
        if (ids.empty()) continue;
        ++proposals;
        const std::vector<int32_t> end(text.end() - 12, text.end());
        bool found = false;
        for (size_t at = 12; at < text.size() && !found; ++at) {
          found =
              std::equal(end.begin(), end.end(), text.begin() + static_cast<ptrdiff_t>(at - 12)) && text[at] == ids[0];
        }
        ASSERT_TRUE(found) << "round " << round << ", " << text.size() << " tokens";
      }
    }
  }
  EXPECT_GT(proposals, 1000u);
}

TEST(Ngram, TakesTheSameTimeForEachToken) {
  NgramDrafter d;
  const std::vector<int32_t> same(500'000, 5);
  const auto begin = std::chrono::steady_clock::now();
  d.saw(same);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(proposed(d, 31).size(), 31u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

TEST(Speculation, NamesAreRead) {
  for (const Speculation s : {Speculation::off, Speculation::automatic, Speculation::ngram, Speculation::mtp}) {
    EXPECT_EQ(*parse_speculation(speculation_name(s)), s);
  }
  EXPECT_EQ(*parse_speculation("model:a/b.swy"), Speculation::model);
  EXPECT_EQ(draft_model_file("model:a/b.swy"), "a/b.swy");
  EXPECT_EQ(draft_model_file("ngram"), "");
  for (const std::string wrong : {"eagle", "model", "model:"}) {
    EXPECT_EQ(parse_speculation(wrong).status().message(),
              "--speculate is '" + wrong + "'; it must be auto, mtp, ngram, model:FILE or off");
  }
}

}  // namespace
}  // namespace switchyard
