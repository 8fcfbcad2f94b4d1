// What a measurement says of the runtime itself: lists, barriers, core's own time.
#include "bench/measure.h"

#include <gmock/gmock.h>

#include <numeric>

#include "tests/engine/fixture.h"

namespace switchyard::bench {
namespace {

const KeepGoing kAlways = [] { return true; };

std::vector<int32_t> some_text(size_t n) {
  std::vector<int32_t> ids(n);
  std::iota(ids.begin(), ids.end(), 100);
  return ids;
}

Measurement decode(const std::string& backend) {
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, backend);
  if (t.model == nullptr) return {};
  const auto text = some_text(10 + 8 + kDecodeExtra);
  auto m = measure_decode(*t.model, test_host(), text, 10, 8, kAlways);
  EXPECT_TRUE(m.ok()) << m.status().message();
  return m.ok() ? std::move(*m) : Measurement{};
}

TEST(Samples, AreRanked) {
  const Samples s{{3, 1, 2, 5, 4}};
  EXPECT_EQ(s.best(), 1);
  EXPECT_EQ(s.median(), 3);
  EXPECT_EQ(s.worst(), 5);
  EXPECT_EQ((Samples{{1, 1, 4}}.mean()), 2);
  EXPECT_EQ(Samples{}.mean(), 0);
  EXPECT_EQ(Samples{}.median(), 0);
}

TEST(Measure, CountsListsAndKernelsOfAToken) {
  const Measurement m = decode("reference");
  EXPECT_EQ(m.samples.seconds.size(), 8u);
  EXPECT_EQ(m.overhead.lists, 2) << "everything up to the final norm, and the head";
  EXPECT_EQ(m.kernel_steps, 16u);
  ASSERT_TRUE(m.kernels.contains("lm_head.plain"));
  EXPECT_EQ(m.kernels.at("lm_head.plain").calls, 16u);
  EXPECT_GT(m.overhead.seconds, 0);
  EXPECT_GT(m.overhead.core_seconds, 0);
  EXPECT_LT(m.overhead.core_share(), 0.02) << "core's share of a step";
}

#ifdef SWITCHYARD_TEST_CPU
TEST(Measure, AGatedDeltaLayerHasSixBarriers) {
  const Measurement m = decode("cpu");
  EXPECT_GT(m.overhead.barriers, 0);
  EXPECT_LE(m.overhead.barriers, 8 * 6 + 6) << "8 layers, embedding and head";
  EXPECT_EQ(m.overhead.barriers, std::floor(m.overhead.barriers)) << "every token the same";
}
#endif

#ifdef SWITCHYARD_TEST_CPU
TEST(Measure, ComparesWhereTokensAreDrawn) {
  ModelOptions options = with_context(128);
  options.sessions = 2;
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, "cpu", options);
  ASSERT_NE(t.model, nullptr);
  Drawing ways[] = {{SamplingPath::fused}, {SamplingPath::logits}};
  SamplingParams greedy;
  greedy.temperature = 0;
  const Status s = measure_drawing(*t.model, test_host(), some_text(10), 10, greedy, 8, ways, kAlways);
  ASSERT_TRUE(s.ok()) << s.message();
  for (const Drawing& way : ways) {
    EXPECT_EQ(way.m.samples.seconds.size(), 8u);
    EXPECT_EQ(way.choice.path, *way.path);
  }
  EXPECT_EQ(ways[0].read_bytes, sizeof(swy_sample_result));
  EXPECT_EQ(ways[1].read_bytes, t.model->vocab() * sizeof(float));
  EXPECT_EQ(ways[0].m.kernels.at("lm_head_sample.vector").calls, 16u) << "no logits, and no sampler of their own";
  EXPECT_FALSE(ways[0].m.kernels.contains("lm_head.vector"));
}
#endif

TEST(Measure, DrawsForSeveralSessionsInOneStep) {
  ModelOptions options = with_context(128);
  options.sessions = 4;
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, "reference", options);
  ASSERT_NE(t.model, nullptr);
  Drawing ways[] = {{{}, 1}, {{}, 3}};
  const Status s = measure_drawing(*t.model, test_host(), some_text(10 + 2 * kPromptsApart), 10, {}, 4, ways, kAlways);
  ASSERT_TRUE(s.ok()) << s.message();
  for (const Drawing& way : ways) {
    EXPECT_EQ(way.m.samples.seconds.size(), 4u);
    EXPECT_EQ(way.m.kernels.at("attention.plain").calls, 2u * way.m.kernel_steps) << "all sessions in one step";
  }
  options.sessions = 2;
  const TestModel small = make_model(SWITCHYARD_DEMO_MODEL, "reference", options);
  ASSERT_NE(small.model, nullptr);
  Drawing many[] = {{{}, 3}};
  EXPECT_FALSE(measure_drawing(*small.model, test_host(), some_text(100), 10, {}, 4, many, kAlways).ok());
}

TEST(Measure, PrefillStartsAfreshEachTime) {
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, "reference", with_context(64));
  ASSERT_NE(t.model, nullptr);
  const auto m = measure_prefill(*t.model, test_host(), some_text(40), 3, kAlways);  // five runs: more than 64 tokens
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_EQ(m->samples.seconds.size(), 3u);
  EXPECT_EQ(m->kernels.at("lm_head.plain").calls, 1u);
}

TEST(Measure, StopsWhenToldTo) {
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, "reference", with_context(64));
  ASSERT_NE(t.model, nullptr);
  const auto m = measure_prefill(*t.model, test_host(), some_text(4), 3, [] { return false; });
  EXPECT_EQ(m.status().code(), Code::cancelled);
}

}  // namespace
}  // namespace switchyard::bench
