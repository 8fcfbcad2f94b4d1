// SPDX-License-Identifier: Apache-2.0
// The sampling path of a request, by the abilities of its device.
#include "core/engine/sampling_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace switchyard {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kAll = (SWY_SAMPLES_STOP_IDS << 1) - 1;

DeviceSampling device(bool token, bool candidates, uint32_t steps) {
  DeviceSampling d;
  d.device = "dev:0";
  d.token = token;
  d.candidates = candidates;
  d.steps = steps;
  return d;
}

struct Case {
  std::string name;
  SamplingParams params;
  bool masked;
  DeviceSampling device;
  SamplingPath path;
  std::string reason;
};

class Choice : public ::testing::TestWithParam<Case> {};

TEST_P(Choice, OfAuto) {
  const Case& c = GetParam();
  const auto sampler = Sampler::create(c.params, 4096);
  ASSERT_TRUE(sampler.ok()) << sampler.status().message();
  const auto choice = choose_path({}, *sampler, c.masked, c.device);
  ASSERT_TRUE(choice.ok());
  EXPECT_STREQ(path_name(choice->path), path_name(c.path));
  EXPECT_THAT(choice->reason, HasSubstr(c.reason));
  // The path that auto chooses can also be requested by name; one that the device lacks cannot.
  for (const SamplingPath asked : {SamplingPath::logits, SamplingPath::candidates, SamplingPath::fused}) {
    const auto same = choose_path(asked, *sampler, c.masked, c.device);
    if (asked == c.path || asked == SamplingPath::logits) {
      EXPECT_TRUE(same.ok());
    }
    if (asked == SamplingPath::fused && c.path != SamplingPath::fused) {
      ASSERT_FALSE(same.ok());
      EXPECT_THAT(same.status().message(), HasSubstr("--sampling fused cannot serve this request: "));
    }
  }
}

std::vector<Case> cases() {
  SamplingParams penalised, greedy, top_k, biased, likely, stopping, many;
  greedy.temperature = 0;
  greedy.top_p = 1;
  penalised.presence_penalty = 0.5f;
  top_k.top_k = 100;
  biased.biases = {{3, 1.0f}};
  likely.top_logprobs = 21;
  stopping.stop_ids = {1};
  many.stop_ids.assign(65, 1);
  DeviceSampling small = device(true, true, kAll);
  small.limits.max_top_k = 64;
  const uint32_t plain = SWY_SAMPLES_GREEDY | SWY_SAMPLES_SEEDED | SWY_SAMPLES_TEMPERATURE;
  return {
      {"OfEverything", {}, false, device(true, true, kAll), SamplingPath::fused, "dev:0 covers the request"},
      {"OfPenalties", penalised, true, device(true, true, kAll), SamplingPath::fused, "covers"},
      {"OfLogitsAlone", {}, false, device(false, false, 0), SamplingPath::logits, "dev:0 offers no sampler"},
      {"OfCandidates", {}, false, device(false, true, kAll), SamplingPath::candidates, "offers no sampler"},
      {"OfCandidatesWithTopP", {}, false, device(true, true, plain), SamplingPath::candidates, "not sample top-p"},
      {"OfGreedy", greedy, false, device(true, false, plain), SamplingPath::fused, "covers"},
      {"OfPenaltiesWithout", penalised, false, device(true, false, kAll & ~SWY_SAMPLES_PENALTIES), SamplingPath::logits,
       "does not sample penalties"},
      {"OfPenaltiesByCandidates", penalised, false, device(false, true, kAll), SamplingPath::logits, "need the counts"},
      {"OfAMaskWithout", {}, true, device(true, true, kAll & ~SWY_SAMPLES_MASK), SamplingPath::logits, "token masks"},
      {"OfALargeTopK", top_k, false, small, SamplingPath::candidates, "at most 64 as top-k, not 100"},
      {"OfABiasWithout", biased, false, device(true, true, kAll & ~SWY_SAMPLES_BIAS), SamplingPath::logits,
       "logit bias"},
      {"OfManyLikelyTokens", likely, false, device(true, false, kAll), SamplingPath::logits, "the 20 most likely"},
      {"OfStopIdsWithout", stopping, false, device(true, true, kAll & ~SWY_SAMPLES_STOP_IDS), SamplingPath::candidates,
       "stop ids"},
      {"OfManyStopIds", many, false, device(true, true, kAll), SamplingPath::candidates, "at most 64 stop ids"}};
}

INSTANTIATE_TEST_SUITE_P(Path, Choice, ::testing::ValuesIn(cases()), [](const auto& c) { return c.param.name; });

TEST(Path, HasFourNames) {
  EXPECT_EQ(*parse_path("auto"), std::nullopt);
  EXPECT_EQ(*parse_path("candidates"), SamplingPath::candidates);
  EXPECT_THAT(parse_path("device").status().message(), HasSubstr("auto, fused, candidates or logits"));
}

}  // namespace
}  // namespace switchyard
