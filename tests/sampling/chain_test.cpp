// SPDX-License-Identifier: Apache-2.0
// The chain: recorded rows, and the rules one by one, through the reference and through the fast sampler.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "switchyard/sdk/row_sampler.hpp"
#include "tests/sampling/golden.h"

namespace switchyard {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Golden, EveryRowGivesTheRecordedToken) {
  int index = 0;
  for (const auto& record : testing::golden("row")) {
    const testing::GoldenRow row(record);
    std::vector<uint64_t> workspace(row.logits.size());
    swy_sample_row_out out{};
    ASSERT_EQ(row.status, swy_sample_row(&row.params, &row.in, workspace.data(), &out)) << index;
    EXPECT_EQ(row.out.token, out.token) << index;
    EXPECT_EQ(row.out.id, out.id) << index;
    EXPECT_EQ(swy_float_bits(row.out.logprob), swy_float_bits(out.logprob)) << index;
    for (const swy::RowKernels* kernels : swy::row_kernels()) {
      swy::RowSampler fast(row.in.vocab, *kernels);
      ASSERT_EQ(row.status, fast.sample(row.params, row.in, out)) << kernels->name << index;
      EXPECT_EQ(row.out.token, out.token) << kernels->name << index;
      EXPECT_EQ(row.out.id, out.id) << kernels->name << index;
      EXPECT_EQ(swy_float_bits(row.out.logprob), swy_float_bits(out.logprob)) << kernels->name << index;
      std::vector<int32_t> likely(row.likely.size());
      std::vector<float> logprobs(likely.size());
      if (row.status == SWY_SAMPLE_OK) fast.top_logprobs(row.logits, likely, logprobs);
      EXPECT_EQ(row.likely, likely) << index;
    }
    ++index;
  }
  EXPECT_EQ(393, index);
}

// Beside the random rows, every rule has rows with another answer when that rule alone is broken.
TEST(Golden, EveryRuleDecidesRows) {
  std::map<std::string, int> rows;
  for (const auto& record : testing::golden("row")) {
    if (record.contains("decides")) ++rows[record.at("decides")];
  }
  EXPECT_EQ(31u, rows.size());
  for (const auto& [rule, count] : rows) EXPECT_EQ(3, count) << rule;
}

// One row with settings, sampled by both samplers, which must agree.
struct Row {
  std::vector<float> logits;
  swy_sample_params params{};
  swy_sample_row_in in{};
  swy_sample_row_out out{};

  explicit Row(std::vector<float> x) : logits(std::move(x)) {
    swy_sample_params_init(&params);
    in.logits = logits.data();
    in.vocab = static_cast<uint32_t>(logits.size());
  }
  int32_t status() {
    EXPECT_EQ(1, swy_sample_params_normalise(&params, nullptr));
    std::vector<uint64_t> workspace(logits.size());
    const int32_t status = swy_sample_row(&params, &in, workspace.data(), &out);
    for (const swy::RowKernels* kernels : swy::row_kernels()) {
      swy_sample_row_out fast_out{};
      EXPECT_EQ(status, swy::RowSampler(in.vocab, *kernels).sample(params, in, fast_out));
      EXPECT_EQ(out.token, fast_out.token);
      EXPECT_EQ(out.id, fast_out.id);
    }
    return status;
  }
  int32_t token() {
    EXPECT_EQ(SWY_SAMPLE_OK, status());
    return out.token;
  }
  // The ids sampled at 2,000 positions.
  std::vector<int32_t> drawn() {
    std::vector<int32_t> ids;
    for (in.position = 0; in.position < 2000; ++in.position) ids.push_back(token());
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  }
};

using Ids = std::vector<int32_t>;

TEST(Chain, GreedyTakesTheLowestOfEquals) {
  Row row({1, 3, 2, 3, 3});
  row.params.temperature = 0;
  EXPECT_EQ(1, row.token());
  row.params.temperature = 9e-6f;
  EXPECT_EQ(1, row.token()) << "below 1e-5 is greedy";
  Row zeros({-0.0f, 0.0f, -0.0f});
  zeros.params.temperature = 0;
  EXPECT_EQ(0, zeros.token()) << "-0 equals 0";
}

TEST(Chain, OneTokenIsDrawnWhateverItsLogit) {
  for (const float x : {0.0f, -3e38f, 3e38f, 1e-45f}) EXPECT_EQ(0, Row({x}).token());
  EXPECT_EQ(3, Row({-kInf, -kInf, -kInf, -90, -kInf}).token());
}

TEST(Chain, NoTokenIsAnError) {
  Row row({1, 2, -kInf});
  const uint32_t none = 0, last = 4;
  row.in.mask = &none;
  EXPECT_EQ(SWY_SAMPLE_NO_TOKEN, row.status());
  row.in.mask = &last;
  EXPECT_EQ(SWY_SAMPLE_NO_TOKEN, row.status()) << "the only id that is allowed is -inf";
  EXPECT_EQ(-1, row.out.token);
  EXPECT_EQ(SWY_SAMPLE_NO_TOKEN, Row(std::vector<float>(70, -kInf)).status());
}

TEST(Chain, BadLogitsRefuseTheRowEvenMasked) {
  for (const float bad : {std::nanf(""), -std::nanf(""), kInf}) {
    std::vector<float> x(100);
    x[97] = bad;
    x[70] = bad;
    Row row(x);
    const std::vector<uint32_t> first_only = {1, 0, 0, 0};
    row.in.mask = first_only.data();
    EXPECT_EQ(SWY_SAMPLE_BAD_LOGIT, row.status());
    EXPECT_EQ(70, row.out.id) << "the lowest";
    EXPECT_EQ(-1, row.out.token);
  }
}

TEST(Chain, MaskLeavesWhatItAllows) {
  Row row(std::vector<float>(70));
  const std::vector<uint32_t> mask = {1u << 5, 1u << 31, 1u << 4};
  row.in.mask = mask.data();
  EXPECT_EQ((Ids{5, 63, 68}), row.drawn());
}

TEST(Chain, TopKKeepsTheLowestOfEquals) {
  Row row({1, 2, 2, 2, 0});
  row.params.top_k = 2;
  EXPECT_EQ((Ids{1, 2}), row.drawn());
  row.params.top_k = 5;
  EXPECT_EQ((Ids{0, 1, 2, 3, 4}), row.drawn());
  row.params.top_k = INT32_MAX;
  EXPECT_EQ((Ids{0, 1, 2, 3, 4}), row.drawn());
}

TEST(Chain, TopPKeepsTheShortestPrefix) {
  // Weights 1/2, 1/4, 1/8, 1/8 of the total, floored to integers.
  Row row({0, std::log(0.5f), std::log(0.25f), std::log(0.25f)});
  row.params.top_p = 0.4f;
  EXPECT_EQ((Ids{0}), row.drawn());
  row.params.top_p = 0.6f;
  EXPECT_EQ((Ids{0, 1}), row.drawn());
  row.params.top_p = 0.8f;
  EXPECT_EQ((Ids{0, 1, 2}), row.drawn()) << "the lowest id of a tie";
  row.params.top_p = 0.9f;
  EXPECT_EQ((Ids{0, 1, 2, 3}), row.drawn());
}

// Equality in sum * 2^15 >= P * total: four equal weights and exactly a half.
TEST(Chain, TopPStopsAtEquality) {
  Row row({1, 1, 1, 1});
  row.params.top_p = 0.5f;
  EXPECT_EQ((Ids{0, 1}), row.drawn());
  row.params.top_p = 0.5f + 1.0f / 32768;
  EXPECT_EQ((Ids{0, 1, 2}), row.drawn());
}

// Logits that differ by next to nothing weigh the same: then the id decides, not the logit.
TEST(Chain, TopPOrdersByWeightNotByLogit) {
  const float above = 0x1p-30f;
  Row row({0, above, 0, above});
  row.params.top_p = 0.5f;
  EXPECT_EQ(swy_weight(0.0f), swy_weight(-above)) << "the premise";
  EXPECT_EQ((Ids{0, 1}), row.drawn());
}

TEST(Chain, TopPCountsWhatTopKKept) {
  Row row({1, 1, 1, 1, 1, 1, 1, 1});
  row.params.top_k = 4;
  row.params.top_p = 0.5f;
  EXPECT_EQ((Ids{0, 1}), row.drawn());
}

// The kept set follows from integers alone: permuting the ids permutes the kept ids.
TEST(Chain, TopPDoesNotDependOnTheOrderOfIds) {
  std::vector<float> x(1000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 5 * std::sin(static_cast<float>(i) * 1.7f);
  std::sort(x.begin(), x.end(), std::greater<>());
  x.erase(std::unique(x.begin(), x.end()), x.end());
  const auto kept = [](const std::vector<float>& logits) {
    swy_sample_params p{};
    swy_sample_params_init(&p);
    p.top_p = 0.9f;
    swy_sample_params_normalise(&p, nullptr);
    swy_sample_row_in in{};
    in.logits = logits.data();
    in.vocab = static_cast<uint32_t>(logits.size());
    std::vector<uint64_t> keys(logits.size());
    uint32_t n = 0;
    int32_t bad = -1;
    swy_row_keys(&p, &in, keys.data(), &n, &bad);
    n = swy_row_truncate(&p, &in, keys.data(), n);
    std::vector<float> values;
    for (uint32_t i = 0; i < n; ++i) values.push_back(logits[swy_row_key_id(keys[i])]);
    std::sort(values.begin(), values.end());
    return values;
  };
  const std::vector<float> want = kept(x);
  ASSERT_GT(want.size(), 50u);
  ASSERT_LT(want.size(), x.size());
  for (size_t step = 3; step < 40; step += 4) {
    std::vector<float> rotated = x;
    std::rotate(rotated.begin(), rotated.begin() + static_cast<ptrdiff_t>(step * 17), rotated.end());
    EXPECT_EQ(want, kept(rotated));
  }
}

TEST(Chain, MinPIsAShareOfTheHighest) {
  Row row({0, std::log(0.5f), std::log(0.26f), std::log(0.24f)});
  row.params.min_p = 0.25f;
  EXPECT_EQ((Ids{0, 1, 2}), row.drawn());
  row.params.min_p = 1;
  EXPECT_EQ((Ids{0}), row.drawn());
}

TEST(Chain, PenaltiesCountPromptAndOutputAsTheDesignSays) {
  const std::vector<uint32_t> counts = {SWY_SEEN_IN_PROMPT, 1, 2, SWY_SEEN_IN_PROMPT | 1, 0};
  Row row({10, 10, 10, 10, 10});
  row.in.counts = counts.data();
  row.params.temperature = 0;
  row.params.repetition_penalty = 2;
  EXPECT_EQ(4, row.token()) << "prompt and output are repetitions";
  row.params.repetition_penalty = 1;
  row.params.presence_penalty = 1;
  EXPECT_EQ(0, row.token()) << "presence looks at the output only";
  row.params.presence_penalty = 0;
  row.params.frequency_penalty = -1;
  EXPECT_EQ(2, row.token()) << "frequency counts the output";
  const auto value = [&](uint32_t id) { return swy_row_logit(&row.params, &row.in, id); };
  row.params.repetition_penalty = 2;
  row.params.frequency_penalty = 0.5f;
  row.params.presence_penalty = 0.25f;
  row.token();
  EXPECT_EQ(5.0f, value(0));
  EXPECT_EQ(4.25f, value(1));
  EXPECT_EQ(3.75f, value(2));
  EXPECT_EQ(4.25f, value(3));
  EXPECT_EQ(10.0f, value(4));
  for (float& x : row.logits) x = -10;
  EXPECT_EQ(-20.0f, value(0)) << "a negative logit is multiplied";
}

TEST(Chain, BiasComesAfterThePenalties) {
  const std::vector<swy_logit_bias> biases = {{1, 3.0f}, {2, -3e38f}, {9, 50.0f}};
  const std::vector<uint32_t> counts = {0, 1, 0};
  Row row({6, 8, 100});
  row.in.biases = biases.data();
  row.in.bias_count = 3;
  row.in.counts = counts.data();
  row.params.temperature = 0;
  row.params.repetition_penalty = 2;
  EXPECT_EQ(1, row.token()) << "8 / 2 + 3 is above 6; id 2 is banned, id 9 does not exist";
  Row dead({-kInf, 1});
  const swy_logit_bias up = {0, 100.0f};
  dead.in.biases = &up;
  dead.in.bias_count = 1;
  EXPECT_EQ((Ids{1}), dead.drawn()) << "a bias does not raise -inf";
}

TEST(Chain, LogprobIsOfTheModelsOwnDistribution) {
  Row row({1, 2, 3, -kInf});
  const swy_logit_bias up = {0, 50.0f};
  row.in.biases = &up;
  row.in.bias_count = 1;
  row.params.flags = SWY_SAMPLE_LOGPROB;
  row.params.temperature = 0;
  ASSERT_EQ(0, row.token());
  EXPECT_NEAR(-2.4076059644, row.out.logprob, 1e-6);
}

}  // namespace
}  // namespace switchyard
