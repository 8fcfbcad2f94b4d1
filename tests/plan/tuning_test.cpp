// SPDX-License-Identifier: Apache-2.0
// Measured costs decide between the kernels of one device, where all were measured, and nowhere else.
#include "core/plan/tuning.h"

#include "core/plan/op_shape.h"
#include "tests/plan/support.h"
#include "tests/support/files.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

constexpr char kPlain[] = "parts.linear_add.plain", kTwin[] = "parts.linear_add.plain.twin";

// `parts` claims that the twin takes half as long.
Use twins() {
  return {"parts,reference", {}, {{"parts", {{"kernels", "linear_add.plain"}, {"twin", "linear_add.plain"}}}}};
}

struct Measured {
  double plain_us = 5, twin_us = 50;
  std::vector<uint64_t> rows = {1, 64};
  std::string version = "1";
  bool both = true;
};

Tuning tuning_of(const Measured& m) {
  const TestModel t = demo(twins());
  TunedDevice device = tuned_device(t.model->devices()[0], test_host().threads());
  device.version = m.version;
  device.date = "2026-11-21";
  const Plan plan = plan_of(t, 1);
  for (const PlanNode& n : plan.nodes) {
    if (n.device != 0) continue;
    for (const auto& [name, us] : {std::pair(kPlain, m.plain_us), {kTwin, m.twin_us}}) {
      if (name == kTwin && !m.both) continue;
      TunedKernel k{"linear_add", shape_text(plan.graph, n.op), name, shape_hash(plan.graph, n.op), {}};
      for (const uint64_t rows : m.rows) k.points.push_back({rows, 0, us * static_cast<double>(rows)});
      device.kernels.push_back(std::move(k));
    }
  }
  Tuning tuning;
  tuning.set_threads(test_host().threads());
  tuning.merge(device);
  return tuning;
}

Use tuned(const Measured& m) {
  Use use = twins();
  use.tuning = std::make_shared<const Tuning>(tuning_of(m));
  return use;
}

size_t twins_in(const Use& use, uint32_t rows) {
  const TestModel t = demo(use);
  const Plan plan = plan_of(t, rows);
  EXPECT_EQ(count(plan, kTwin) + count(plan, kPlain), 8u);
  return count(plan, kTwin);
}

TEST(Tuned, ChoiceFlips) {
  const TestModel before = demo(twins()), after = demo(tuned({}));
  ASSERT_NE(after.model, nullptr);
  for (const uint32_t rows : {1u, 8u, 64u}) {
    EXPECT_EQ(count(plan_of(before, rows), kTwin), 8u) << "as estimated";
    EXPECT_EQ(count(plan_of(after, rows), kPlain), 8u) << "as measured, and in between";
  }
  EXPECT_EQ(count(plan_of(after, 128), kTwin), 8u) << "outside of what was measured";
  EXPECT_THAT(explain_text(plan_of(before, 1), true), HasSubstr("; estimate)"));
  const std::string text = explain_text(plan_of(after, 1), true);
  EXPECT_THAT(text, HasSubstr("parts:0 parts.linear_add.plain (fused; tuned 2026-11-21)"));
  EXPECT_THAT(text, HasSubstr("50.0 us as measured"));
  EXPECT_THAT(text, HasSubstr("; estimate)")) << "other operations";
  EXPECT_TRUE(same_bits(some_logits(*before.model), some_logits(*after.model)));
}

TEST(Tuned, EqualTimesLeaveItToTheEstimate) { EXPECT_EQ(twins_in(tuned({5, 5}), 1), 8u); }

TEST(Tuned, DecidesOnlyWhereItKnowsAll) {
  EXPECT_EQ(twins_in(tuned({.both = false}), 1), 8u);
  EXPECT_EQ(twins_in(tuned({.version = "2"}), 1), 8u) << "another build";
  EXPECT_EQ(twins_in(tuned({.rows = {4, 64}}), 1), 8u);
}

TEST(Tuned, GivesWayToWhatIsAskedFor) {
  Use forced = tuned({});
  forced.rules = {std::string("linear_add=") + kTwin};
  const TestModel t = demo(forced);
  const Plan plan = plan_of(t, 1);
  EXPECT_EQ(count(plan, kTwin), 8u);
  EXPECT_THAT(explain_text(plan, true), HasSubstr("; forced)"));
  Use deterministic = tuned({});
  deterministic.deterministic = true;
  EXPECT_EQ(twins_in(deterministic, 1), 8u) << "bits may not depend on a measurement there";
}

// The plain kernel is measured ten times as fast, but no longer says that its results repeat; the twin does.
TEST(Tuned, KeepsResultsThatRepeat) {
  Use use = tuned({});
  use.settings["parts"].push_back({"loose", "linear_add.plain"});
  EXPECT_EQ(twins_in(use, 1), 8u);
  Use neither = tuned({.plain_us = 50, .twin_us = 5});
  neither.settings["parts"].push_back({"loose", "linear_add.plain"});
  EXPECT_EQ(twins_in(neither, 1), 8u) << "the faster one repeats";
}

TEST(TuningFile, SameFileSamePlan) {
  const switchyard::testing::TemporaryFolder folder;
  const Tuning made = tuning_of({});
  ASSERT_TRUE(made.save(Os::real(), folder.path("tuning.json")).ok());
  std::string warning;
  Tuning read = Tuning::load(Os::real(), folder.path("tuning.json"), warning);
  EXPECT_EQ(warning, "");
  EXPECT_EQ(read.text(), made.text());
  read.set_threads(test_host().threads());
  Use use = twins();
  use.tuning = std::make_shared<const Tuning>(read);
  const TestModel a = demo(use), b = demo(tuned({}));
  EXPECT_EQ(explain_text(plan_of(a, 16), true), explain_text(plan_of(b, 16), true));
}

TEST(TuningFile, NewMeasurementsReplaceOldOnes) {
  Tuning tuning = tuning_of({});
  const size_t kernels = tuning.devices()[0].kernels.size();
  tuning.merge(tuning_of({.plain_us = 70}).devices()[0]);
  tuning.merge(tuning_of({.version = "2"}).devices()[0]);
  ASSERT_EQ(tuning.devices().size(), 2u);
  EXPECT_EQ(tuning.devices()[0].kernels.size(), kernels);
  EXPECT_EQ(tuning.devices()[0].kernels[0].points[0].us, 70);
}

TEST(TuningFile, MeasurementsOfOtherRowsStay) {
  Tuning tuning = tuning_of({});  // of 1 and 64 rows
  tuning.merge(tuning_of({.plain_us = 70, .rows = {64, 8}}).devices()[0]);
  const TunedKernel& plain = tuning.devices()[0].kernels[0];
  ASSERT_EQ(plain.kernel, kPlain);
  ASSERT_EQ(plain.points.size(), 3u);
  EXPECT_EQ(plain.points[0].rows, 1u);
  EXPECT_EQ(plain.points[0].us, 5) << "as before";
  EXPECT_EQ(plain.points[1].rows, 8u);
  EXPECT_EQ(plain.points[1].us, 70 * 8) << "new, in order";
  EXPECT_EQ(plain.points[2].rows, 64u);
  EXPECT_EQ(plain.points[2].us, 70 * 64) << "measured again";
}

TEST(TuningFile, WhatIsBrokenIsIgnoredWithALine) {
  const std::string good = tuning_of({}).text();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const switchyard::testing::TemporaryFolder folder;
  const std::string deep(1 << 20, '[');
  for (const std::string& text : {deep, std::string(), std::string("{"), std::string("[]"), std::string("\xff\xfe"),
                                  good.substr(0, good.size() / 2), with("switchyard.tuning/1", "switchyard.tuning/2"),
                                  with("\"points\"", "\"dots\""), with("5.0", "-5.0"), with("5.0", "\"fast\""),
                                  with("\"key\": \"", "\"key\": \"x")}) {
    std::string warning;
    const Tuning t = Tuning::load(Os::real(), folder.write("tuning.json", text), warning);
    EXPECT_TRUE(t.devices().empty()) << text;
    EXPECT_THAT(warning, HasSubstr("is ignored")) << text;
    EXPECT_EQ(warning.find('\n'), std::string::npos);
  }
  std::string warning;
  EXPECT_TRUE(Tuning::load(Os::real(), folder.path("none.json"), warning).devices().empty());
  EXPECT_EQ(warning, "") << "no file is no fault";
}

}  // namespace
}  // namespace switchyard
