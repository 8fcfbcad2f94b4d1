// SPDX-License-Identifier: Apache-2.0
// Sampling completed from a device's candidates: a decided token is that of the whole row, and they decide as often as
// they can.
#include "core/sampling/candidates.h"

#include <gtest/gtest.h>

#include "tests/sampling/random_rows.h"

namespace switchyard {
namespace {

using testing::RandomRow;

// What TOP_CANDIDATES returns for a row.
struct Top {
  std::vector<uint64_t> workspace;
  std::vector<int32_t> ids;
  std::vector<float> logits;
  Candidates view;
  swy_sample_row_in in;  // without the logits

  Top(const swy_sample_params& p, const swy_sample_row_in& row, uint32_t k)
      : workspace(row.vocab), ids(k), logits(k), in(row) {
    in.logits = nullptr;
    swy_row_candidates(&p, &row, k, workspace.data(), ids.data(), logits.data(), &view.result);
    view.ids = ids;
    view.logits = logits;
  }
  std::optional<int32_t> finish(const swy_sample_params& p, swy_sample_row_out& out) {
    return finish_draw(p, in, view, workspace, out);
  }
};

TEST(Candidates, WhatTheyDecideIsTheTokenOfTheWholeRow) {
  std::mt19937_64 random(5);
  int decided = 0, undecided = 0;
  for (int i = 0; i < 20000; ++i) {
    const RandomRow row(random, testing::random_vocab(random, 300));
    const uint32_t k = 1 + static_cast<uint32_t>(random() % std::min(row.in.vocab, random() % 4 == 0 ? 300u : 40u));
    swy_sample_row_out want{}, got{};
    const int32_t status = row.expected(want);
    Top top(row.params, row.in, k);
    const auto finished = top.finish(row.params, got);
    if (!finished) {
      ++undecided;
      ASSERT_LT(k, top.view.result.live) << "all live ids were there";
      ASSERT_NE(0.0f, row.params.inv_temperature) << "greedy needs one candidate";
      continue;
    }
    ++decided;
    ASSERT_EQ(status, *finished) << i;
    ASSERT_EQ(want.token, got.token) << i << " k " << k << " live " << top.view.result.live;
    ASSERT_EQ(want.id, got.id) << i;
    ASSERT_EQ(swy_float_bits(want.logprob), swy_float_bits(got.logprob)) << i;
  }
  EXPECT_GT(decided, 5000);
  EXPECT_GT(undecided, 500);
}

TEST(Candidates, TopLogprobsThatTheyDecideAreThoseOfTheRow) {
  std::mt19937_64 random(6);
  int decided = 0;
  for (int i = 0; i < 5000; ++i) {
    RandomRow row(random, testing::random_vocab(random, 200));
    row.params.flags |= SWY_SAMPLE_LOGPROB;
    const uint32_t k = 1 + static_cast<uint32_t>(random() % row.in.vocab), n = 1 + static_cast<uint32_t>(random() % 8);
    Top top(row.params, row.in, k);
    std::vector<int32_t> want_ids(n, -1), ids(n);
    std::vector<float> want(n), got(n);
    if (!finish_top_logprobs(row.params, top.in, top.view, top.workspace, ids, got)) continue;
    ++decided;
    if (top.view.result.status == SWY_SAMPLE_OK) {
      swy_row_top_logprobs(row.in.logits, row.in.vocab, n, top.workspace.data(), want_ids.data(), want.data());
    }
    ASSERT_EQ(want_ids, ids) << i;
    ASSERT_EQ(want, got) << i;
  }
  EXPECT_GT(decided, 500);
}

// A row as models make them: a few likely ids and a long tail.
struct Tail {
  std::vector<float> logits = std::vector<float>(5000);
  swy_sample_params p{};
  swy_sample_row_in in{};

  Tail() {
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = -2.0f * std::log(static_cast<float>(i + 1));
    swy_sample_params_init(&p);
    in.logits = logits.data();
    in.vocab = static_cast<uint32_t>(logits.size());
  }
  int decided(uint32_t k) {
    EXPECT_EQ(1, swy_sample_params_normalise(&p, nullptr));
    int n = 0;
    for (p.seed = 0; p.seed < 200; ++p.seed) {
      swy_sample_row_out out{};
      n += Top(p, in, k).finish(p, out) ? 1 : 0;
    }
    return n;
  }
};

TEST(Candidates, EnoughOfThemAlwaysDecideATruncatedDraw) {
  Tail row;
  row.p.top_k = 40;
  EXPECT_EQ(200, row.decided(40));
  row.p.top_p = 0.9f;
  EXPECT_EQ(200, row.decided(64));
  row.p.top_k = 0;
  EXPECT_EQ(200, row.decided(64)) << "sums of 1/i^2: 0.9 is reached after 6 ids";
  row.p.top_p = 1;
  row.p.min_p = 0.001f;
  EXPECT_EQ(200, row.decided(64)) << "1/i^2 falls below 0.001 after 31 ids";
  row.p.temperature = 0;
  EXPECT_EQ(200, row.decided(1));
}

TEST(Candidates, TooFewOfThemDoNotDecide) {
  Tail row;
  row.p.top_p = 0.99f;
  EXPECT_EQ(0, row.decided(20)) << "0.99 needs 60 ids, and the 20 do not outweigh any noise";
  row.p.top_p = 1;
  EXPECT_EQ(0, row.decided(64)) << "without truncation any id could get the highest noise";
  row.p.temperature = 0.05f;
  EXPECT_EQ(200, row.decided(64)) << "but not when it starts 160 below";
  row.p.temperature = 1;
  row.p.top_k = 100;
  row.p.top_p = 0.9f;
  EXPECT_EQ(0, row.decided(64)) << "the total of the 100 is not known";
}

}  // namespace
}  // namespace switchyard
