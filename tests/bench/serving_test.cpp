// SPDX-License-Identifier: Apache-2.0
// Serving: the load is what the header says, every request is timed, and limits end it early.
#include "bench/serving.h"

#include <gmock/gmock.h>

#include <numeric>

#include "tests/engine/fixture.h"

namespace switchyard::bench {
namespace {

using ::testing::Each;
using ::testing::Ge;
using ::testing::Gt;
using ::testing::HasSubstr;

ServingLoad small_load() {
  ServingLoad load;
  load.concurrency = 3;
  load.requests = 5;
  load.prompt_min = 4;
  load.prompt_max = 24;
  load.output_min = 2;
  load.output_max = 8;
  return load;
}

std::vector<int32_t> serving_text() {
  std::vector<int32_t> ids(200);
  std::iota(ids.begin(), ids.end(), 100);
  return ids;
}

Result<Serving> serve(
    const std::string& backend, const ServingLoad& load, const KeepGoing& keep_going = [] { return true; }) {
  ModelOptions options = with_context(48);
  options.sessions = 3;
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, backend, options);
  if (t.model == nullptr) return Status(Code::internal, "no model");
  return measure_serving(*t.model, load, serving_text(), keep_going);
}

TEST(Serving, LengthsAreLogUniform) {
  ServingLoad load;
  const auto shapes = request_shapes(load, 4000);
  uint32_t below = 0;
  for (const RequestShape& s : shapes) {
    ASSERT_GE(s.prompt, 16u);
    ASSERT_LE(s.prompt, 512u);
    ASSERT_GE(s.output, 8u);
    ASSERT_LE(s.output, 128u);
    below += s.prompt < 91;  // the geometric middle of 16 and 513
  }
  EXPECT_NEAR(below, 2000, 160);
  const auto again = request_shapes(load, 10);
  for (size_t i = 0; i < again.size(); ++i) EXPECT_EQ(again[i].prompt, shapes[i].prompt);
  load.seed = 2;
  EXPECT_NE(request_shapes(load, 1)[0].place, shapes[0].place);
}

class OnBackends : public ::testing::TestWithParam<const char*> {};

TEST_P(OnBackends, EveryRequestIsTimed) {
  const ServingLoad load = small_load();
  const auto s = serve(GetParam(), load);
  ASSERT_TRUE(s.ok()) << s.status().message();
  EXPECT_EQ(s->requests, 5u);
  // The counted requests are those after the warm-up, although requests end in another order than they begin.
  EXPECT_EQ(s->ttft.seconds.size(), 5u);
  const auto shapes = request_shapes(load, 8);
  size_t gaps = 0;
  for (size_t i = 3; i < 8; ++i) gaps += shapes[i].output - 1;
  EXPECT_EQ(s->itl.seconds.size(), gaps);
  EXPECT_THAT(s->ttft.seconds, Each(Gt(0)));
  EXPECT_THAT(s->itl.seconds, Each(Gt(0)));
  EXPECT_THAT(s->parts.seconds, Each(Gt(0)));
  EXPECT_GE(s->parts.seconds.size(), 2u);
  EXPECT_GE(s->tokens, 6u);
}

#ifdef SWITCHYARD_TEST_CPU
INSTANTIATE_TEST_SUITE_P(Serving, OnBackends, ::testing::Values("reference", "cpu"));
#else
INSTANTIATE_TEST_SUITE_P(Serving, OnBackends, ::testing::Values("reference"));
#endif

TEST(Serving, TheTimeLimitLeavesFewerRequests) {
  ServingLoad load = small_load();
  load.requests = 1'000'000;
  load.seconds = 0.3;
  const auto s = serve("reference", load);
  ASSERT_TRUE(s.ok()) << s.status().message();
  EXPECT_LT(s->requests, 1'000'000u);
  EXPECT_THAT(s->ttft.seconds.size(), Ge(s->requests));
  load.seconds = 0;
  const auto none = serve("reference", load);
  ASSERT_TRUE(none.ok()) << none.status().message();
  EXPECT_EQ(none->requests, 0u);
  EXPECT_TRUE(none->parts.seconds.empty());
}

TEST(Serving, StopsWhenToldTo) {
  int steps = 0;
  const auto s = serve("reference", small_load(), [&] { return ++steps < 4; });
  EXPECT_EQ(s.status().code(), Code::cancelled);
  EXPECT_EQ(steps, 4);
}

TEST(Serving, LoadsThatDoNotFitAreRefused) {
  const auto fault = [](auto change) {
    ServingLoad load = small_load();
    change(load);
    const auto s = serve("reference", load);
    EXPECT_EQ(s.status().code(), Code::usage);
    return s.status().message();
  };
  EXPECT_THAT(fault([](ServingLoad& l) { l.concurrency = 0; }), HasSubstr("1 to 64"));
  EXPECT_THAT(fault([](ServingLoad& l) { l.concurrency = 65; }), HasSubstr("65 requests"));
  EXPECT_THAT(fault([](ServingLoad& l) { l.concurrency = 4; }), HasSubstr("the model was made for 3"));
  EXPECT_THAT(fault([](ServingLoad& l) { l.prompt_max = 60; }), HasSubstr("does not fit the context of"));
  EXPECT_THAT(fault([](ServingLoad& l) { l.output_min = 0; }), HasSubstr("neither may be empty"));
  EXPECT_THAT(fault([](ServingLoad& l) { l.prompt_min = 30; }), HasSubstr("reversed"));
}

}  // namespace
}  // namespace switchyard::bench
