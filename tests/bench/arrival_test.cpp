// SPDX-License-Identifier: Apache-2.0
// Arrival: every gap is counted where it belongs, and loads that do not fit are refused.
#include "bench/arrival.h"

#include <gmock/gmock.h>

#include <numeric>

#include "tests/engine/fixture.h"

namespace switchyard::bench {
namespace {

using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;

ArrivalLoad small_arrival() {
  ArrivalLoad load;
  load.sessions = 3;
  load.context = 10;
  load.prompt = 40;
  load.arrivals = 2;
  load.apart = 5;
  load.prompt_rows = 8;
  return load;
}

Result<Arrival> arrive(
    const std::string& backend, const ArrivalLoad& load, const KeepGoing& keep_going = [] { return true; }) {
  ModelOptions options = with_context(160);
  options.sessions = 4;
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, backend, options);
  if (t.model == nullptr) return Status(Code::internal, "no model");
  std::vector<int32_t> text(60);
  std::iota(text.begin(), text.end(), 100);
  return measure_arrival(*t.model, load, text, keep_going);
}

class ArrivesOn : public ::testing::TestWithParam<const char*> {};

TEST_P(ArrivesOn, EveryGapIsCounted) {
  const auto a = arrive(GetParam(), small_arrival());
  ASSERT_TRUE(a.ok()) << a.status().message();
  EXPECT_EQ(a->ttft.seconds.size(), 2u);
  // Before each of two arrivals, three sessions generate five tokens; some may be a token ahead of others.
  EXPECT_GE(a->alone.seconds.size(), 2u * 3 * 5);
  EXPECT_LE(a->alone.seconds.size(), 2u * 3 * 7);
  // A prompt of 40 is read 8 at a time: five steps, each of which gives the other sessions a token, and one more
  // afterwards.
  EXPECT_GE(a->beside.seconds.size(), 2u * 3 * 5);
  EXPECT_LE(a->beside.seconds.size(), 2u * 3 * 9);
  EXPECT_THAT(a->alone.seconds, Each(Gt(0)));
  EXPECT_THAT(a->beside.seconds, Each(Gt(0)));
  EXPECT_GT(a->ttft.best(), a->beside.best());
}

// In one step as large as the model takes, the others wait for the whole prompt.
TEST_P(ArrivesOn, AWholePromptInOneStepIsOneGap) {
  ArrivalLoad load = small_arrival();
  load.prompt_rows = 0;
  const auto a = arrive(GetParam(), load);
  ASSERT_TRUE(a.ok()) << a.status().message();
  EXPECT_LE(a->beside.seconds.size(), 2u * 3 * 5);
}

#ifdef SWITCHYARD_TEST_CPU
INSTANTIATE_TEST_SUITE_P(Arrival, ArrivesOn, ::testing::Values("reference", "cpu"));
#else
INSTANTIATE_TEST_SUITE_P(Arrival, ArrivesOn, ::testing::Values("reference"));
#endif

TEST(Arrival, StopsWhenToldTo) {
  int steps = 0;
  const auto a = arrive("reference", small_arrival(), [&] { return ++steps < 4; });
  EXPECT_EQ(a.status().code(), Code::cancelled);
  EXPECT_EQ(steps, 4);
}

TEST(Arrival, LoadsThatDoNotFitAreRefused) {
  const auto fault = [](auto change) {
    ArrivalLoad load = small_arrival();
    change(load);
    const auto a = arrive("reference", load);
    EXPECT_EQ(a.status().code(), Code::usage);
    return a.status().message();
  };
  EXPECT_THAT(fault([](ArrivalLoad& l) { l.sessions = 0; }), HasSubstr("1 to 64"));
  EXPECT_THAT(fault([](ArrivalLoad& l) { l.sessions = 4; }), HasSubstr("the model was made for 4"));
  EXPECT_THAT(fault([](ArrivalLoad& l) { l.apart = 0; }), HasSubstr("none of these may be 0"));
  EXPECT_THAT(fault([](ArrivalLoad& l) { l.apart = 500; }), HasSubstr("the context is"));
  EXPECT_THAT(fault([](ArrivalLoad& l) { l.prompt = 55; }), HasSubstr("a text of 60 tokens is too short"));
}

}  // namespace
}  // namespace switchyard::bench
