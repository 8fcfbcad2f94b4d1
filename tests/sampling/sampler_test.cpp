// SPDX-License-Identifier: Apache-2.0
// Sampler: parameters refused with their range, counts, biases, stop ids, log-probabilities, and errors of a row.
#include "core/sampling/sampler.h"
#include "core/sampling/recommended.h"

#include <gtest/gtest.h>

#include <limits>

namespace switchyard {
namespace {

Sampler make(const SamplingParams& params, uint32_t vocab) {
  Result<Sampler> s = Sampler::create(params, vocab);
  EXPECT_TRUE(s.ok()) << s.status().message();
  return *std::move(s);
}

SamplingParams greedy() {
  SamplingParams p;
  p.temperature = 0;
  return p;
}

std::string refusal(const SamplingParams& params, uint32_t vocab = 10) {
  const Result<Sampler> s = Sampler::create(params, vocab);
  EXPECT_FALSE(s.ok());
  EXPECT_EQ(Code::usage, s.status().code());
  return s.status().message();
}

TEST(Sampler, RefusesParametersWithTheirRange) {
  EXPECT_EQ("temperature is -1; it must be 0 (greedy) or more, and finite", refusal({.temperature = -1}));
  EXPECT_EQ("top_p is 0; it must be above 0 and at most 1", refusal({.top_p = 0}));
  EXPECT_EQ("top_k is -3; it must be 0 (off) or more", refusal({.top_k = -3}));
  EXPECT_EQ("logit_bias names token 10; ids go from 0 to 9", refusal({.biases = {{10, 1.0f}}}));
  EXPECT_EQ("logit_bias names token 3 twice; give each id once", refusal({.biases = {{3, 1}, {5, 1}, {3, 2}}}));
  EXPECT_EQ("logit_bias of token 3 is inf; it must be finite",
            refusal({.biases = {{3, std::numeric_limits<float>::infinity()}}}));
  EXPECT_EQ("top_logprobs is 11; it must be 0 (none) to 10", refusal({.top_logprobs = 11}));
  EXPECT_EQ("the vocabulary has 0 tokens; it must have 1 to 16777216", refusal({}, 0));
}

TEST(Sampler, ErrorsOfARowSayWhat) {
  Sampler s = make(greedy(), 3);
  std::vector<float> logits = {1, std::numeric_limits<float>::quiet_NaN(), 2};
  EXPECT_EQ("the logit of token 1 is NaN or infinite; the model's weights or a kernel are broken",
            s.draw(logits, 0).status().message());
  logits.assign(3, -std::numeric_limits<float>::infinity());
  EXPECT_EQ("no token is left to draw: every logit is -inf or masked", s.draw(logits, 0).status().message());
  logits.resize(4);
  EXPECT_EQ("4 logits were given to a sampler of 3", s.draw(logits, 0).status().message());
}

TEST(Sampler, AFrequencyPenaltyAloneCounts) {
  SamplingParams p = greedy();
  p.frequency_penalty = 2;
  Sampler s = make(p, 3);
  const std::vector<float> logits = {8, 5, 3};
  EXPECT_EQ(0, s.draw(logits, 0)->token);
  s.saw_output(0);
  EXPECT_EQ(0, s.draw(logits, 1)->token) << "8 - 2 is above 5";
  s.saw_output(0);
  EXPECT_EQ(1, s.draw(logits, 2)->token) << "8 - 4 is not";
}

TEST(Sampler, RandomSeedsHave64Bits) {
  uint64_t any = 0;
  for (int i = 0; i < 16; ++i) any |= make({}, 3).seed();
  EXPECT_NE(any >> 32, 0u);
  EXPECT_NE(any & UINT32_MAX, 0u);
}

TEST(Sampler, TakesNoTokenBeyondTheVocabularyFromADevice) {
  Sampler s = make(greedy(), 3);
  EXPECT_TRUE(s.accept({2, SWY_SAMPLE_OK, 0, 0}, {}, {}).ok());
  for (const int32_t token : {-1, 3, 4}) {
    EXPECT_EQ(fmt::format("a device drew token {}; ids go from 0 to 2", token),
              s.accept({token, SWY_SAMPLE_OK, 0, 0}, {}, {}).status().message());
  }
}

TEST(Sampler, CountsPromptAndOutput) {
  SamplingParams p = greedy();
  p.repetition_penalty = 2;
  p.frequency_penalty = 1;
  Sampler s = make(p, 3);
  const std::vector<float> logits = {8, 5, 3};
  EXPECT_EQ(0, s.draw(logits, 0)->token);
  s.saw_prompt(0);
  EXPECT_EQ(1, s.draw(logits, 0)->token);
  s.saw_output(1);
  EXPECT_EQ(0, s.draw(logits, 0)->token) << "4, 1.5, 3";
  s.saw_output(0);
  EXPECT_EQ(0, s.draw(logits, 0)->token) << "3 and 3: the lowest";
  s.saw_output(0);
  EXPECT_EQ(2, s.draw(logits, 0)->token);
  s.saw_prompt(-1);
  s.saw_output(3);
  EXPECT_EQ((std::vector<uint32_t>{SWY_SEEN_IN_PROMPT | 2, 1, 0}),
            std::vector<uint32_t>(s.counts().begin(), s.counts().end()));
}

TEST(Sampler, StopsAndBiases) {
  SamplingParams p = greedy();
  p.biases = {{2, 9}, {1, -9}};
  p.stop_ids = {7, 2};
  Sampler s = make(p, 3);
  const Draw d = *s.draw(std::vector<float>{1, 20, 4}, 0);
  EXPECT_EQ(2, d.token);
  EXPECT_TRUE(d.stopped);
  EXPECT_FALSE(s.draw(std::vector<float>{1, 40, 4}, 0)->stopped);
}

TEST(Sampler, GivesLogprobs) {
  SamplingParams p = greedy();
  p.top_logprobs = 2;
  Sampler s = make(p, 3);
  const Draw d = *s.draw(std::vector<float>{1, 2, 3}, 0);
  EXPECT_EQ((std::vector<int32_t>{2, 1}), std::vector<int32_t>(d.top_ids.begin(), d.top_ids.end()));
  EXPECT_EQ(d.logprob, d.top_logprobs[0]);
  EXPECT_NEAR(-0.4076059644, d.logprob, 1e-6);
  EXPECT_NEAR(-1.4076059644, d.top_logprobs[1], 1e-6);
}

TEST(Sampler, ASeedRepeatsARunAndNoSeedIsRandom) {
  SamplingParams p;
  EXPECT_NE(make(p, 4).seed(), make(p, 4).seed());
  p.seed = 42;
  EXPECT_EQ(42u, make(p, 4).seed());
  const std::vector<float> logits(1000, 1.0f);
  Sampler a = make(p, 1000), b = make(p, 1000);
  for (uint64_t i = 0; i < 50; ++i) EXPECT_EQ(a.draw(logits, i)->token, b.draw(logits, i)->token);
}

TEST(Sampler, FinishesFromCandidatesOrSaysThatItCannot) {
  SamplingParams p;
  p.top_k = 2;
  p.top_p = 1;
  p.seed = 1;
  p.top_logprobs = 1;
  Sampler s = make(p, 4);
  const std::vector<float> logits = {1, 4, 3, 2}, best = {4, 3, 2};
  const std::vector<int32_t> ids = {1, 2, 3};
  Candidates c{ids, best, {}};
  c.result.live = 4;
  c.result.max_logit = 4;
  float max = 0;
  c.result.logprob_total = swy_row_logprob_total(logits.data(), 4, &max);
  for (uint64_t position = 0; position < 100; ++position) {
    const auto finished = s.finish(c, position);
    ASSERT_TRUE(finished.ok() && finished->has_value());
    const Draw d = **finished;
    const float logprob = d.logprob, first = d.top_logprobs[0];
    const Draw whole = *s.draw(logits, position);
    EXPECT_EQ(whole.token, d.token);
    EXPECT_EQ(whole.logprob, logprob);
    EXPECT_EQ(whole.top_logprobs[0], first);
  }
  Sampler open = make({.temperature = 1, .top_p = 1, .seed = 1}, 4);
  EXPECT_FALSE(open.finish(c, 0)->has_value());
  const std::vector<int32_t> wrong = {1, 4, 3};
  EXPECT_EQ("a device named token 4 a candidate; ids go from 0 to 3",
            s.finish({wrong, best, c.result}, 0).status().message());
  c.result.status = SWY_SAMPLE_BAD_LOGIT;
  c.result.id = 2;
  EXPECT_EQ(Code::invalid_data, s.finish(c, 0).status().code());
}

// Answers of a broken device: an error or a token, and nothing is read out of bounds.
TEST(Sampler, RefusesCandidatesThatNoDeviceMayGive) {
  SamplingParams p;
  p.top_logprobs = 1;
  p.repetition_penalty = 2;
  Sampler s = make(p, 4);
  const std::vector<int32_t> ids = {1, 2};
  const std::vector<float> logits = {4, 3};
  Candidates good{ids, logits, {}};
  good.result.live = 2;
  good.result.total = good.result.logprob_total = uint64_t{3} << 29;
  good.result.max_logit = 4;
  ASSERT_TRUE(s.finish(good, 0).ok());
  const auto refusal = [&](auto change) {
    Candidates c = good;
    change(c);
    const auto finished = s.finish(c, 0);
    EXPECT_FALSE(finished.ok());
    return finished.status().message();
  };
  const std::vector<int32_t> absent = {-1, -1};
  const std::vector<float> nan = {4, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ("a device answered with status 0 and 0 live ids of 4", refusal([&](Candidates& c) {
              c.result.live = 0;
              c.ids = absent;
            }));
  EXPECT_EQ("a device answered with status 0 and 5 live ids of 4", refusal([](Candidates& c) { c.result.live = 5; }));
  EXPECT_EQ("a device answered with status 77 and 2 live ids of 4",
            refusal([](Candidates& c) { c.result.status = 77; }));
  EXPECT_EQ("a device named token -1 a candidate; ids go from 0 to 3", refusal([&](Candidates& c) { c.ids = absent; }));
  EXPECT_EQ("a device gave candidate 2 the logit nan; it must be finite",
            refusal([&](Candidates& c) { c.logits = nan; }));
  EXPECT_EQ("a device gave no log-probabilities: total 0, highest logit 4",
            refusal([](Candidates& c) { c.result.logprob_total = 0; }));
  EXPECT_EQ("2 candidates came with 1 logits", refusal([](Candidates& c) { c.logits = c.logits.first(1); }));
  EXPECT_EQ("0 candidates came with 0 logits", refusal([](Candidates& c) { c = Candidates{}; }));
  for (const uint64_t total : {uint64_t{0}, uint64_t{1}, UINT64_MAX}) {
    Candidates c = good;
    c.result.total = c.result.logprob_total = std::max<uint64_t>(total, 1);
    c.result.live = 4;
    EXPECT_TRUE(s.finish(c, 0).ok()) << total;
  }
}

TEST(Sampler, TakesWhatAModelRecommends) {
  const std::vector<std::pair<std::string_view, std::string_view>> metadata = {
      {"origin", "o/n"},          {"sampling.temperature", "0.25"}, {"sampling.top_k", "20"},
      {"sampling.top_p", "high"}, {"sampling.min_p", "0.5x"},       {"sampling.presence_penalty", "1.5"}};
  SamplingParams p;
  take_recommended(metadata, p);
  EXPECT_EQ(p.temperature, 0.25f);
  EXPECT_EQ(p.top_k, 20);
  EXPECT_EQ(p.presence_penalty, 1.5f);
  EXPECT_EQ(p.top_p, SamplingParams().top_p);
  EXPECT_EQ(p.min_p, 0.0f);
}

}  // namespace
}  // namespace switchyard
