// SPDX-License-Identifier: Apache-2.0
// A measurement's figures of the runtime itself: lists, barriers, core's own time.
#include "bench/measure.h"

#include <gmock/gmock.h>

#include <cmath>
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

constexpr uint32_t kWatched = 8;

struct Watched {
  std::vector<double> seconds;
  Overhead overhead;
  std::map<std::string, KernelTime> kernels;
};

Watched watched(const std::string& backend) {
  Watched w;
  ModelOptions options = with_context(128);
  options.sessions = 2;  // the context, and its fork
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, backend, options);
  if (t.model == nullptr) return w;
  const auto text = some_text(64);
  Contexts contexts(*t.model, text);
  EXPECT_TRUE(contexts.read(10, 1, 60, kAlways).ok());
  const auto stepper = text_stepper(contexts, 20);
  EXPECT_TRUE(take_turn(*stepper, 2, 8, w.seconds).ok());
  EXPECT_TRUE(watch_turn(*stepper, *t.model, test_host(), 2, kWatched, w.overhead).ok());
  EXPECT_TRUE(trace_turn(*stepper, *t.model, test_host(), 2, kWatched, w.kernels).ok());
  return w;
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
  const Watched m = watched("reference");
  EXPECT_EQ(m.seconds.size(), 8u);
  EXPECT_EQ(m.overhead.lists, 1) << "everything up to the final norm, and the head";
  ASSERT_TRUE(m.kernels.contains("lm_head.plain"));
  EXPECT_EQ(m.kernels.at("lm_head.plain").calls, kWatched);
  EXPECT_GT(m.overhead.seconds, 0);
  EXPECT_GT(m.overhead.core_seconds, 0);
  EXPECT_LT(m.overhead.core_share(), 0.02) << "core's share of a step";
}

#ifdef SWITCHYARD_TEST_CPU
TEST(Measure, AGatedDeltaLayerHasSixBarriers) {
  const Watched m = watched("cpu");
  EXPECT_GT(m.overhead.barriers, 0);
  EXPECT_LE(m.overhead.barriers, 8 * 6 + 6) << "8 layers, embedding and head";
  EXPECT_EQ(m.overhead.barriers, std::floor(m.overhead.barriers)) << "every token the same";
}

TEST(Measure, DrawsWhereItIsTold) {
  ModelOptions options = with_context(128);
  options.sessions = 2;
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, "cpu", options);
  ASSERT_NE(t.model, nullptr);
  SamplingParams greedy;
  greedy.temperature = 0;
  const auto text = some_text(64);
  Contexts contexts(*t.model, text);
  ASSERT_TRUE(contexts.read(10, 1, 60, kAlways).ok());
  for (const SamplingPath path : {SamplingPath::fused, SamplingPath::logits}) {
    const auto stepper = draw_stepper(contexts, 1, greedy, path, 20);
    std::vector<double> seconds;
    std::map<std::string, KernelTime> kernels;
    ASSERT_TRUE(take_turn(*stepper, 2, 8, seconds).ok());
    EXPECT_EQ(seconds.size(), 8u);
    EXPECT_EQ(stepper->path().path, path);
    const uint64_t each = path == SamplingPath::fused ? sizeof(swy_sample_result) : t.model->vocab() * sizeof(float);
    EXPECT_EQ(stepper->read_bytes(), 10 * each);
    ASSERT_TRUE(trace_turn(*stepper, *t.model, test_host(), 2, kWatched, kernels).ok());
    EXPECT_EQ(kernels.contains("lm_head_sample.vector"), path == SamplingPath::fused);
    EXPECT_EQ(kernels.contains("lm_head.vector"), path == SamplingPath::logits);
  }
}
#endif

TEST(Measure, DrawsForSeveralRequestsInOneStep) {
  ModelOptions options = with_context(128);
  options.sessions = 6;
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, "reference", options);
  ASSERT_NE(t.model, nullptr);
  const auto text = some_text(20 + 6 * Contexts::kPromptsApart);
  Contexts contexts(*t.model, text);
  ASSERT_TRUE(contexts.read(10, 3, 60, kAlways).ok());
  const auto stepper = draw_stepper(contexts, 3, {}, {}, 10);
  std::map<std::string, KernelTime> kernels;
  ASSERT_TRUE(trace_turn(*stepper, *t.model, test_host(), 1, 4, kernels).ok());
  EXPECT_EQ(kernels.at("attention.plain").calls, 2u * 4) << "all requests in one step";
  EXPECT_EQ(contexts.read(10, 7, 60, kAlways).code(), Code::out_of_device_memory) << "the model has six sessions";
}

TEST(Measure, EveryTurnBeginsWithTheSameState) {
  ModelOptions options = with_context(64);
  options.sessions = 2;
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, "reference", options);
  ASSERT_NE(t.model, nullptr);
  const auto text = some_text(64);
  Contexts contexts(*t.model, text);
  ASSERT_TRUE(contexts.read(20, 1, 60, kAlways).ok());
  const auto stepper = text_stepper(contexts, 10);
  std::vector<double> seconds;
  for (int turn = 0; turn < 6; ++turn) ASSERT_TRUE(take_turn(*stepper, 1, 9, seconds).ok()) << "turn " << turn;
  EXPECT_EQ(seconds.size(), 54u) << "more than the context has room for";
  EXPECT_EQ(contexts.session(0).position(), 20u);
}

TEST(Measure, PromptsStartAfreshEachTime) {
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, "reference", with_context(64));
  ASSERT_NE(t.model, nullptr);
  const auto text = some_text(40);
  auto stepper = prompt_stepper(*t.model, text, 60);
  ASSERT_TRUE(stepper.ok()) << stepper.status().message();
  std::vector<double> seconds;
  ASSERT_TRUE(take_turn(**stepper, 0, 3, seconds).ok());  // more than 64 tokens
  EXPECT_EQ(seconds.size(), 3u);
}

TEST(Measure, SaysBeforehandWhatWouldTakeTooLong) {
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, "reference", with_context(1024));
  ASSERT_NE(t.model, nullptr);
  const auto text = some_text(1000);
  const auto stepper = prompt_stepper(*t.model, text, 1e-3);
  EXPECT_EQ(stepper.status().code(), Code::cancelled);
  EXPECT_THAT(stepper.status().message(), ::testing::HasSubstr("reading 1000 tokens would take about"));
  Contexts contexts(*t.model, text);
  EXPECT_EQ(contexts.read(900, 1, 1e-3, kAlways).code(), Code::cancelled);
  EXPECT_EQ(contexts.read(20, 1, 60, [] { return false; }).code(), Code::cancelled);
}

}  // namespace
}  // namespace switchyard::bench
