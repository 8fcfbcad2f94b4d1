// SPDX-License-Identifier: Apache-2.0
// Impossible requests are refused with the value and the allowed range, before any work is done.
#include <gmock/gmock.h>

#include <limits>

#include "core/import/synthetic.h"
#include "tests/engine/fixture.h"
#include "tests/support/batches.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

struct Bad {
  const char* name;
  void (*change)(Request& r);
  std::vector<const char*> told;
};

class Refusals : public ::testing::TestWithParam<Bad> {};

TEST_P(Refusals, ComeBeforeAnyWork) {
  const TestModel t = make_model(kDemo, "reference", options_for(1));
  ASSERT_NE(t.model, nullptr);
  auto session = t.model->session();
  SubmitCounts submits;
  t.model->runner().watch(&submits);
  Batch batch(*t.model);
  Request r = request_of({1, 2}, {.seed = 1}, 4);
  bool called = false;
  r.on_token = [&](const TokenEvent&) { return called = true; };
  GetParam().change(r);
  const auto added = batch.add(**session, std::move(r));
  ASSERT_FALSE(added.ok());
  EXPECT_EQ(added.status().code(), Code::usage);
  for (const char* part : GetParam().told) EXPECT_THAT(added.status().message(), HasSubstr(part));
  EXPECT_EQ(added.status().message().find('\n'), std::string::npos);
  EXPECT_EQ(batch.running_count(), 0u);
  EXPECT_FALSE(*batch.step());
  EXPECT_FALSE(called);
  EXPECT_EQ(submits.lists, 0u);
  EXPECT_EQ((*session)->position(), 0u);
  EXPECT_EQ(t.model->states().pages().free(), t.model->states().pages().count());
  t.model->runner().watch(nullptr);
}

#define BAD(name, statement, ...)                        \
  Bad {                                                  \
    name, [](Request& r) { statement; }, { __VA_ARGS__ } \
  }

const char* kTemperature = "it must be 0 (greedy) or more, and finite";
const char* kTopP = "it must be above 0 and at most 1";
const char* kPenalty = "it must be from -2 to 2";

INSTANTIATE_TEST_SUITE_P(
    Of, Refusals,
    ::testing::Values(
        BAD("TemperatureBelowZero", r.sampling.temperature = -0.5f, "temperature is -0.5", kTemperature),
        BAD("TemperatureNaN", r.sampling.temperature = kNaN, "temperature is nan", kTemperature),
        BAD("TemperatureInfinite", r.sampling.temperature = kInf, "temperature is inf", kTemperature),
        BAD("TopPZero", r.sampling.top_p = 0, "top_p is 0;", kTopP),
        BAD("TopPAboveOne", r.sampling.top_p = 1.5f, "top_p is 1.5", kTopP),
        BAD("TopPNaN", r.sampling.top_p = kNaN, "top_p is nan", kTopP),
        BAD("TopKBelowZero", r.sampling.top_k = -1, "top_k is -1", "it must be 0 (off) or more"),
        BAD("MinPBelowZero", r.sampling.min_p = -0.25f, "min_p is -0.25", "it must be from 0 to 1"),
        BAD("MinPAboveOne", r.sampling.min_p = 2, "min_p is 2", "it must be from 0 to 1"),
        BAD("MinPNaN", r.sampling.min_p = kNaN, "min_p is nan", "it must be from 0 to 1"),
        BAD("RepetitionZero", r.sampling.repetition_penalty = 0, "repetition_penalty is 0;", "above 0 and finite"),
        BAD("PresenceTooLarge", r.sampling.presence_penalty = 3, "presence_penalty is 3", kPenalty),
        BAD("FrequencyNaN", r.sampling.frequency_penalty = kNaN, "frequency_penalty is nan", kPenalty),
        BAD("BiasOfNoToken", (r.sampling.biases = {{4096, 1.0f}}), "logit_bias names token 4096", "from 0 to 4095"),
        BAD("BiasTwice", (r.sampling.biases = {{5, 1.0f}, {5, 2.0f}}), "logit_bias names token 5 twice"),
        BAD("BiasInfinite", (r.sampling.biases = {{5, kInf}}), "logit_bias of token 5 is inf", "must be finite"),
        BAD("TooManyLogprobs", r.sampling.top_logprobs = 4097, "top_logprobs is 4097", "0 (none) to 4096"),
        BAD("NoPrompt", r.prompt.clear(), "the prompt has no tokens"),
        BAD("TokenBelowZero", (r.prompt = {3, -1}), "token id -1", "from 0 to 4095"),
        BAD("HistoryOfNoToken", (r.history = {5000}), "token id 5000", "from 0 to 4095"),
        BAD("PromptTooLong", r.prompt.assign(513, 1), "513 tokens", "512 of the context's 512 are free"),
        BAD("NoTokens", r.max_tokens = 0, "max_tokens is 0", "at least 1")),
    [](const auto& bad) { return std::string(bad.param.name); });

// An empty mask is noticed when its token comes; it ends only its own request, without a further token.
TEST(Refusals, AnEmptyMaskIsItsRequestsError) {
  const TestModel t = make_model(kDemo, "reference", options_for(2));
  ASSERT_NE(t.model, nullptr);
  auto one = t.model->session(), two = t.model->session();
  Batch batch(*t.model);
  Request empty = request_of({1, 2}, {.seed = 1}, 4);
  empty.mask = [](std::span<const int32_t>, std::span<uint32_t>) {};
  Drawn drawn;
  const Request other = request_of({3}, {.seed = 2}, 6, &drawn);
  const auto id = batch.add(**one, std::move(empty));
  ASSERT_TRUE(id.ok() && batch.add(**two, other).ok());
  ASSERT_NO_FATAL_FAILURE(run_all(batch));
  EXPECT_THAT(batch.outcome(*id)->status.message(),
              HasSubstr("no token can match the request's mask after 0 generated tokens"));
  EXPECT_TRUE(batch.outcome(*id)->ids.empty());
  one->reset();
  EXPECT_TRUE(drawn == draw_alone(*t.model, other, SamplingPath::fused));
}

TestModel tiny(uint64_t seed) {
  SyntheticRequest request;
  request.config = SWITCHYARD_TEST_DATA "/tiny/odd-widths/config.json";
  request.seed = seed;
  auto program = synthetic_program(Os::real(), request, 1);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return program.ok() ? make_model(std::move(*program), "reference", with_context(64)) : TestModel{};
}

TEST(Refusals, ASnapshotOfAnotherModel) {
  const TestModel demo = make_model(kDemo, "reference", options_for(1)), one = tiny(1), two = tiny(2), same = tiny(1);
  ASSERT_TRUE(demo.model != nullptr && one.model != nullptr && two.model != nullptr && same.model != nullptr);
  const std::vector<int32_t> ids = {1, 2, 3};
  auto session = one.model->session();
  ASSERT_TRUE((*session)->feed(ids).ok());
  const auto snapshot = (*session)->snapshot();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
  // Another shape, and the same shape with other weights.
  for (const TestModel* other : {&demo, &two}) {
    auto keeps = other->model->session();
    ASSERT_TRUE((*keeps)->feed(std::span(ids).first(2)).ok());
    const std::string before = *(*keeps)->snapshot();
    const Status restored = (*keeps)->restore(*snapshot);
    EXPECT_EQ(restored.code(), Code::usage);
    EXPECT_THAT(restored.message(), HasSubstr("the snapshot is of another model ("));
    EXPECT_THAT(restored.message(), HasSubstr(fmt::format("{:016x}", one.model->fingerprint())));
    EXPECT_EQ((*keeps)->position(), 2u);
    EXPECT_TRUE(*(*keeps)->snapshot() == before);
  }
  auto restored = same.model->session();
  EXPECT_TRUE((*restored)->restore(*snapshot).ok());
}

}  // namespace
}  // namespace switchyard
