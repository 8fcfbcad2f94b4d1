// SPDX-License-Identifier: Apache-2.0
// The results of tuning, and crossovers between kernels.
#include "bench/tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/crossover.h"
#include "tests/engine/fixture.h"

namespace switchyard::bench {
namespace {

struct Backends {
  std::unique_ptr<Registry> registry;
  Registry::Selection selection;
  std::shared_ptr<const Program> program;
};

// `parts` claims that the twin of linear_add takes half as long; in fact it takes longer, or fails at the rows that are
// `broken`.
Backends liars(const char* broken = nullptr) {
  Backends b;
  DiscoveryOptions discovery;
  discovery.libraries = {SWITCHYARD_PLAN_FIXTURES "/switchyard_parts.so",
                         SWITCHYARD_TEST_BACKENDS "/switchyard_reference.so"};
  discovery.settings = {{"parts", {{"kernels", "linear_add.plain"}, {"twin", "linear_add.plain"}, {"lag", "3000"}}}};
  if (broken != nullptr) discovery.settings["parts"].push_back({"broken", broken});
  b.registry = std::make_unique<Registry>(Registry::discover(Os::real(), discovery, test_host()));
  auto selection = b.registry->select("parts,reference");
  EXPECT_TRUE(selection.ok()) << selection.status().message();
  b.selection = std::move(*selection);
  auto program = Program::load(Os::real(), SWITCHYARD_DEMO_MODEL);
  EXPECT_TRUE(program.ok());
  b.program = std::make_shared<const Program>(std::move(*program));
  return b;
}

TuneRequest quick() {
  TuneRequest r;
  r.rows = {1, 4};
  r.depths = {7, 63};
  r.seconds = 0.02;
  r.threads = test_host().threads();
  r.date = "2026-11-21";
  return r;
}

TEST(Tune, FindsThatACostLies) {
  const Backends b = liars();
  const auto found =
      tune(b.program, b.selection.devices, b.selection.policy, quick(), [](size_t, size_t) { return true; });
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_FALSE(found->interrupted);
  ASSERT_FALSE(found->changes.empty());
  EXPECT_EQ(found->measured, found->changes.size());
  for (const TuneChange& c : found->changes) {
    EXPECT_EQ(c.op, "linear_add");
    EXPECT_EQ(c.from, "parts.linear_add.plain.twin");
    EXPECT_EQ(c.to, "parts.linear_add.plain");
    EXPECT_GT(c.from_us, c.to_us);
  }
  Tuning tuning;
  tuning.set_threads(test_host().threads());
  for (const TunedDevice& d : found->devices) tuning.merge(d);
  PlanPolicy policy = b.selection.policy;
  policy.tuning = std::make_shared<const Tuning>(tuning);
  OpRequest request;
  request.rows = {1, 2, 4};
  request.depth = 7;
  request.op = "linear_add";
  request.seconds = 0.0001;
  const auto after = measure_ops(b.program, b.selection.devices, policy, request, [](size_t, size_t) { return true; });
  ASSERT_TRUE(after.ok()) << after.status().message();
  for (const OpTime& t : after->times) EXPECT_EQ(t.chosen, t.kernel == "parts.linear_add.plain") << t.rows;
}

TEST(Tune, KeepsWhatItHasWhenStopped) {
  const Backends b = liars();
  const auto none =
      tune(b.program, b.selection.devices, b.selection.policy, quick(), [](size_t, size_t) { return false; });
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->interrupted);
  EXPECT_EQ(none->measured, 0u);
  const auto some =
      tune(b.program, b.selection.devices, b.selection.policy, quick(), [](size_t done, size_t) { return done < 1; });
  ASSERT_TRUE(some.ok());
  EXPECT_EQ(some->measured, 1u);
  EXPECT_EQ(some->devices[0].kernels.size(), 2u);
}

TEST(Tune, OneFailingKernelLeavesTheRest) {
  const Backends b = liars("1 4");
  const auto all = [](size_t, size_t) { return true; };
  const auto none = tune(b.program, b.selection.devices, b.selection.policy, quick(), all);
  ASSERT_FALSE(none.ok()) << "nothing is left to compare";
  EXPECT_THAT(none.status().message(), ::testing::HasSubstr("parts.linear_add.plain.twin: "));
  OpRequest request;
  request.rows = {1, 4};
  request.depth = 7;
  request.op = "linear_add";
  request.seconds = 0.0001;
  const auto ops = measure_ops(b.program, b.selection.devices, b.selection.policy, request, all);
  ASSERT_TRUE(ops.ok()) << ops.status().message();
  EXPECT_FALSE(ops->interrupted);
  size_t failed = 0;
  for (const OpRefusal& r : ops->refusals) {
    if (!r.failed) continue;
    ++failed;
    EXPECT_EQ(r.kernel, "parts.linear_add.plain.twin");
    EXPECT_NE(r.reason, "");
  }
  EXPECT_GT(failed, 0u);
  EXPECT_EQ(ops->times.size(), failed) << "the other kernel of each shape";
  for (const OpTime& t : ops->times) EXPECT_EQ(t.kernel, "parts.linear_add.plain");
}

TEST(Tune, AFailureIsNamedBesideWhatWasMeasured) {
  const Backends b = liars("4");
  const auto found =
      tune(b.program, b.selection.devices, b.selection.policy, quick(), [](size_t, size_t) { return true; });
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_GT(found->measured, 0u);
  ASSERT_FALSE(found->failures.empty());
  for (const TuneFailure& f : found->failures) {
    EXPECT_EQ(f.op, "linear_add");
    EXPECT_EQ(f.rows, 4u);
    EXPECT_THAT(f.reason, ::testing::HasSubstr("parts.linear_add.plain.twin: "));
  }
}

OpTime time_of(const char* kernel, uint32_t rows, double us, bool chosen, int samples = 50) {
  OpTime t;
  t.device = "cpu:0";
  t.op = "moe";
  t.shape = "8 -> 8";
  t.kernel = kernel;
  t.rows = rows;
  t.chosen = chosen;
  for (int i = 0; i < samples; ++i) t.samples.seconds.push_back(us * (1 + 0.001 * i) / 1e6);
  return t;
}

TEST(Crossovers, AreWhereTheFastestKernelChanges) {
  const std::vector<OpTime> times = {time_of("plain", 1, 10, true),    time_of("sorted", 1, 40, false),
                                     time_of("plain", 16, 160, true),  time_of("sorted", 16, 40, false),
                                     time_of("plain", 64, 640, false), time_of("sorted", 64, 41, true)};
  const auto all = crossovers(times);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].from, "plain");
  EXPECT_EQ(all[0].to, "sorted");
  EXPECT_EQ(all[0].rows_from, 1u);
  EXPECT_EQ(all[0].rows, 16u);
  EXPECT_NEAR(all[0].about, 4, 0.1);
  EXPECT_TRUE(all[0].clear);
  EXPECT_EQ(all[0].planner, 64u);
  const std::vector<OpTime> near = {time_of("plain", 1, 10, true), time_of("sorted", 1, 10.1, false),
                                    time_of("plain", 16, 10.1, true), time_of("sorted", 16, 10, false)};
  ASSERT_EQ(crossovers(near).size(), 1u);
  EXPECT_FALSE(crossovers(near)[0].clear);
  EXPECT_FALSE(crossovers(near)[0].few);
  for (const int n : {1, 2, 4, 5}) {
    const std::vector<OpTime> slow = {time_of("plain", 1, 10, true), time_of("sorted", 1, 40, false),
                                      time_of("plain", 16, 160, true, n), time_of("sorted", 16, 40, false)};
    ASSERT_EQ(crossovers(slow).size(), 1u);
    EXPECT_EQ(crossovers(slow)[0].clear, n >= 5) << n << " samples";
    EXPECT_EQ(crossovers(slow)[0].few, n < 5) << n << " samples";
  }
}

TEST(MedianBounds, HoldTheMedian) {
  Samples s;
  for (int i = 1; i <= 101; ++i) s.seconds.push_back(i);
  const MedianBounds b = median_bounds(s);
  EXPECT_NEAR(b.low, 38, 1);
  EXPECT_NEAR(b.high, 64, 1);
  EXPECT_EQ(median_bounds(Samples{{3, 1, 2}}).low, 1) << "few samples: all of them";
  EXPECT_EQ(median_bounds(Samples{{3, 1, 2}}).high, 3);
}

}  // namespace
}  // namespace switchyard::bench
