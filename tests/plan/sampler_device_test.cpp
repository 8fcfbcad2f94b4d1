// SPDX-License-Identifier: Apache-2.0
// Sampling on another device than the one that makes the logits.
#include "core/engine/batch.h"
#include "tests/plan/support.h"
#include "tests/support/batches.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

#ifdef SWITCHYARD_TEST_CPU
constexpr char kMain[] = "cpu";
#else
constexpr char kMain[] = "reference";
#endif

Use with_samplers(std::string backend) {
  Use use{std::move(backend)};
  use.found = {"reference", kMain, "ranger", "sampler_quick", "sampler_slow"};
  return use;
}

std::string beside(const std::string& first, const std::string& then) { return first + "," + then; }

PlanDecision sampler_of(const TestModel& t) { return plan_of(t, 1).decisions.back(); }

TEST(SamplerDevice, DrawsTheTokensOfAnotherBackendsLogits) {
  const TestModel t = demo(with_samplers(beside("sampler_quick", kMain))), alone = demo(with_samplers(kMain));
  ASSERT_TRUE(t.model != nullptr && alone.model != nullptr);
  EXPECT_EQ(t.model->device_sampling().device, "sampler_quick:0");
  EXPECT_THAT(t.model->device_names(), ::testing::ElementsAre("sampler_quick:0", std::string(kMain) + ":0"));
  std::vector<Request> requests(4);
  requests[0] = request_of(kShortPrompt, {.temperature = 0.8f, .top_p = 0.95f, .top_k = 40, .seed = 11}, 24);
  requests[1] = request_of(kShortPrompt, {.repetition_penalty = 1.3f, .presence_penalty = 0.5f, .seed = 5}, 24);
  requests[2] = request_of(kShortPrompt, {.seed = 6, .top_logprobs = 3}, 8);
  requests[3] = request_of(kShortPrompt, {.seed = 7}, 8);
  requests[3].mask = [](std::span<const int32_t>, std::span<uint32_t> mask) { mask[3] = mask[50] = 0xff; };
  for (const Request& r : requests) {
    const Drawn drawn = draw_alone(*t.model, r, SamplingPath::fused);
    EXPECT_EQ(drawn.ids.size(), r.max_tokens);
    EXPECT_TRUE(drawn == draw_alone(*alone.model, r, SamplingPath::logits));
  }
}

TEST(SamplerDevice, IsTheFirstOfTheListThatCan) {
  const TestModel t = demo(with_samplers(beside("sampler_quick", kMain))),
                  u = demo(with_samplers(beside(kMain, "sampler_quick")));
  ASSERT_TRUE(t.model != nullptr && u.model != nullptr);
  EXPECT_EQ(sampler_of(t).chosen, "sampler_quick:0 sample.plain");
  EXPECT_EQ(sampler_of(t).reason, "the first of the list that can");
  EXPECT_THAT(sampler_of(u).chosen, HasSubstr(std::string(kMain) + ":0 sample."));
  const std::string text = explain_text(plan_of(u, 1), true);
  EXPECT_THAT(text, HasSubstr("sampler_quick:0 sample.plain as sampler: can, 22.6 us: copies the logits from " +
                              std::string(kMain) + ":0, which takes 21.6 us of these\n"));
}

TEST(SamplerDevice, IsTheCheapestWhereCostDecides) {
  Use use = with_samplers("auto");
  use.found = {"reference", "ranger", "sampler_slow", "sampler_quick"};
  const TestModel t = demo(use);
  ASSERT_NE(t.model, nullptr);
  EXPECT_EQ(sampler_of(t).chosen, "sampler_quick:0 sample.plain");
  EXPECT_EQ(sampler_of(t).reason, "the cheapest, copies included");
  const std::string text = explain_text(plan_of(t, 1), true);
  EXPECT_THAT(text, HasSubstr("ranger:0 - as sampler: offers no sampler\n"));
  EXPECT_THAT(text, HasSubstr("sampler_slow:0 sample.plain as sampler: can, 921.6 us"));
  EXPECT_THAT(text, HasSubstr("reference:0 - as sampler: samples for no other device: the host is faster\n"));
}

TEST(SamplerDevice, IsNamedByVariant) {
  Use use = with_samplers(beside("sampler_quick", kMain));
  use.rules = {"sample=!sample.plain"};
  const TestModel t = demo(use);
  ASSERT_NE(t.model, nullptr);
  EXPECT_THAT(explain_text(plan_of(t, 1), true),
              HasSubstr("sampler_quick:0 - as sampler: sample.plain: forbidden by --variant"));
  EXPECT_NE(t.model->device_sampling().device, "sampler_quick:0");
}

TEST(SamplerDevice, IsTheHostWhereNoneOffers) {
  const TestModel t = demo({"ranger"});
  ASSERT_NE(t.model, nullptr);
  EXPECT_EQ(sampler_of(t).chosen, "the host");
  EXPECT_EQ(sampler_of(t).reason, "no chosen backend offers to sample");
}

}  // namespace
}  // namespace switchyard
