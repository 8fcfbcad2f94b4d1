// SPDX-License-Identifier: Apache-2.0
// Regressions between two reports: of speed beyond the threshold, and of correctness at all.
#include "bench/compare.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/bench/sample_report.h"

namespace switchyard::bench {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr double kThreshold = 0.03;

// Samples around `seconds`, as noisy as a quiet machine's.
std::vector<double> samples(double seconds, uint32_t seed, size_t n = 64) {
  std::mt19937 random(seed);
  std::vector<double> all(n);
  for (double& s : all) s = seconds * (1 + 0.01 * (static_cast<double>(random() % 1000) / 1000 - 0.5));
  return all;
}

Report noisy_report(uint32_t seed) {
  Report r = sample_report();
  for (Configuration& c : r.configurations) {
    for (Cell& cell : c.cells) {
      if (cell.state == State::measured) cell.samples = samples(cell.tokens / cell.rate->median, ++seed);
    }
  }
  return r;
}

Cell& cpu_decode(Report& r) { return r.configurations[1].cells[2]; }
Correctness& cpu_correctness(Report& r) { return *r.configurations[1].correctness; }

TEST(Compare, TheSameIsNoDifference) {
  const ReportChanges changes = compare_reports(noisy_report(1), noisy_report(100), kThreshold);
  EXPECT_EQ(changes.regressions(), 0u);
  EXPECT_EQ(changes.rates.size(), 9u);
  EXPECT_THAT(changes.warnings, IsEmpty());
  EXPECT_THAT(changes.missing, IsEmpty());
  for (const RateChange& c : changes.rates) {
    EXPECT_NEAR(c.ratio, 1, 0.01);
    EXPECT_LE(c.low, c.ratio);
    EXPECT_GE(c.high, c.ratio);
  }
}

TEST(Compare, SlowerBeyondTheThresholdRegresses) {
  Report after = noisy_report(100);
  for (double& s : cpu_decode(after).samples) s *= 1.05;
  const ReportChanges changes = compare_reports(noisy_report(1), after, kThreshold);
  EXPECT_EQ(changes.regressions(), 1u);
  const auto slow = std::find_if(changes.rates.begin(), changes.rates.end(), [](auto& c) { return c.regressed; });
  ASSERT_NE(slow, changes.rates.end());
  EXPECT_EQ(slow->configuration, "cpu");
  EXPECT_EQ(slow->metric, Metric::decode);
  EXPECT_EQ(slow->verdict, Verdict::slower);
  EXPECT_NEAR(slow->ratio, 1 / 1.05, 0.01);
  EXPECT_EQ(compare_reports(noisy_report(1), after, 0.10).regressions(), 0u) << "a wider threshold";
}

TEST(Compare, NoiseIsNoVerdict) {
  Report before = sample_report(), after = sample_report();
  cpu_decode(before).samples = {1, 2, 3, 1.5, 2.5};
  cpu_decode(after).samples = {1.2, 2.2, 3.2, 1.4, 2.6};
  EXPECT_EQ(compare_reports(before, after, 0).regressions(), 0u);
}

TEST(Compare, LessRightRegresses) {
  const auto regressions = [](auto change) {
    Report after = sample_report();
    change(after);
    return compare_reports(sample_report(), after, kThreshold).regressions();
  };
  EXPECT_EQ(regressions([](Report& r) { cpu_correctness(r).kl_mean *= 1.4; }), 0u);
  EXPECT_EQ(regressions([](Report& r) { cpu_correctness(r).kl_mean *= 2; }), 1u);
  EXPECT_EQ(regressions([](Report& r) { cpu_correctness(r).kl_worst = std::nan(""); }), 1u);
  EXPECT_EQ(regressions([](Report& r) { cpu_correctness(r).top1 -= 1.0 / 80; }), 0u) << "one position";
  EXPECT_EQ(regressions([](Report& r) { cpu_correctness(r).top1 -= 2.0 / 80; }), 1u);
  EXPECT_EQ(regressions([](Report& r) { cpu_correctness(r).ops[0].worst_row = 0.02; }), 1u);
  EXPECT_EQ(regressions([](Report& r) { cpu_correctness(r).state = State::failed; }), 1u);
}

TEST(Compare, AnOperationsErrorThatGrowsRegresses) {
  const auto changes = [](double before, double after) {
    Report a = sample_report(), b = sample_report();
    for (Report* r : {&a, &b}) cpu_correctness(*r).ops[0].budget.reset();
    cpu_correctness(a).ops[0].worst_row = before;
    cpu_correctness(b).ops[0].worst_row = after;
    return compare_reports(a, b, kThreshold);
  };
  EXPECT_EQ(changes(2e-3, 2.8e-3).regressions(), 0u);
  EXPECT_EQ(changes(2e-3, 3.2e-3).regressions(), 1u);
  EXPECT_EQ(changes(3.2e-3, 2e-3).regressions(), 0u);
  EXPECT_EQ(changes(1e-7, 9e-7).regressions(), 0u) << "rounding";
  EXPECT_EQ(changes(0, 1e-4).regressions(), 1u);
  EXPECT_EQ(changes(2e-3, std::nan("")).regressions(), 1u);
  EXPECT_EQ(changes(INFINITY, INFINITY).regressions(), 0u) << "no worse than before";
  EXPECT_EQ(changes(2e-3, 3.2e-3).others.back().what, "error of moe_add.rows");
}

TEST(Compare, WhatFailsNowRegresses) {
  Report after = sample_report();
  cpu_decode(after).state = State::crashed;
  cpu_decode(after).reason = "segmentation fault";
  const ReportChanges changes = compare_reports(sample_report(), after, kThreshold);
  EXPECT_EQ(changes.regressions(), 1u);
  EXPECT_EQ(changes.rates.size(), 8u);
  cpu_decode(after).state = State::interrupted;
  EXPECT_EQ(compare_reports(sample_report(), after, kThreshold).regressions(), 0u) << "the user's own doing";
}

TEST(Compare, MissingAndFewAreListed) {
  Report after = sample_report();
  after.configurations[0].name = "reference#2";
  after.configurations[1].cells.erase(after.configurations[1].cells.begin());
  cpu_decode(after).samples = {1, 2, 3, 4};
  const ReportChanges changes = compare_reports(sample_report(), after, kThreshold);
  EXPECT_THAT(changes.missing,
              ElementsAre("reference: only in the old report", "cpu, prefill 128: only in the old report",
                          "cpu, decode at 1024: 5 and 4 samples are too few to compare",
                          "reference#2: only in the new report"));
}

TEST(Compare, OtherSettingsAreWarnedOf) {
  Report after = sample_report();
  after.machine.processor = "Another";
  after.model.name = "other";
  after.configurations[1].threads = 4;
  after.probes.read_gbs = 15;
  const ReportChanges changes = compare_reports(sample_report(), after, kThreshold);
  EXPECT_EQ(changes.warnings.size(), 4u);
  EXPECT_THAT(changes.warnings, Contains("cpu: other threads: 2 before, 4 now"));
  EXPECT_THAT(changes.warnings, Contains(HasSubstr("read at 20.0 GB/s before, at 15.0 now")));
}

TEST(Compare, EveryFormatSaysIt) {
  const Report before = noisy_report(1);
  Report after = noisy_report(100);
  after.configurations[1].name = after.comparisons[0].other = "cpu";
  for (double& s : cpu_decode(after).samples) s *= 1.25;
  after.configurations[0].name = "<i>|x";
  const ReportChanges changes = compare_reports(before, after, kThreshold);
  const auto render = [&](ReportFormat f) { return render_changes(before, after, changes, f, {}); };
  EXPECT_THAT(render(ReportFormat::table),
              AllOf(HasSubstr("1 regressed"), HasSubstr("% slower ("), HasSubstr("reference: only in the old report")));
  EXPECT_THAT(render(ReportFormat::md), AllOf(HasSubstr("**regressed**"), Not(HasSubstr("<i>"))));
  EXPECT_THAT(render(ReportFormat::html), AllOf(HasSubstr("<svg"), HasSubstr("regressed"), Not(HasSubstr("<i>"))));
  EXPECT_THAT(render(ReportFormat::csv), HasSubstr("cpu,decode,0,"));
  const auto json = nlohmann::json::parse(render(ReportFormat::json));
  EXPECT_EQ(json["regressions"], 1);
  EXPECT_EQ(json["cells"].size(), 5u);
}

}  // namespace
}  // namespace switchyard::bench
