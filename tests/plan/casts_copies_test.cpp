// Values that change their type or their device on the way.
#include "tests/plan/support.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

size_t count(const Plan& plan, const char* kernel) {
  return static_cast<size_t>(std::count_if(plan.nodes.begin(), plan.nodes.end(), [&](const PlanNode& n) {
    return n.kernel != nullptr && std::string(n.kernel->name) == kernel;
  }));
}

// The demo has 8 layers with two sums each, so 16 additions.
TEST(Casts, StandAroundAKernelThatTakesOnlyBf16) {
  const TestModel exact = demo_on("reference"), t = demo_on("narrow,reference");
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_EQ(count(plan, "add.narrow"), 16u);
  EXPECT_GT(plan.casts(), 16u);
  EXPECT_GT(plan.copies(), 0u);
  for (const PlanNode& n : plan.nodes) {
    if (n.kernel == nullptr || std::string(n.kernel->name) != "add.narrow") continue;
    for (const uint32_t v : n.op.inputs) EXPECT_EQ(plan.graph.values[v].dtype, SWY_BF16);
    for (const uint32_t v : n.op.outputs) EXPECT_EQ(plan.graph.values[v].dtype, SWY_BF16);
  }
  const std::vector<float> a = some_logits(*exact.model), b = some_logits(*t.model);
  ASSERT_EQ(a.size(), b.size());
  EXPECT_FALSE(same_bits(a, b));  // it did round
  double error = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    size += a[i] * a[i];
  }
  EXPECT_LT(std::sqrt(error / size), 0.05);  // sixteen roundings to 8 bits of mantissa
}

TEST(Copies, AreSegmentsOfTheirOwnBetweenDevices) {
  const TestModel t = demo_on("far,reference");
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_EQ(count(plan, "add.far"), 16u);
  EXPECT_EQ(plan.casts(), 0u);
  size_t copies = 0;
  for (const PlanSegment& s : plan.segments) {
    if (!s.copy) {
      for (uint32_t n = s.begin; n < s.end; ++n) EXPECT_EQ(plan.nodes[n].device, s.device);
      continue;
    }
    ++copies;
    EXPECT_EQ(s.end - s.begin, 1u);
    EXPECT_NE(plan.nodes[s.begin].copy_from, static_cast<int>(s.device));
  }
  EXPECT_EQ(copies, plan.copies());
  // Every sum but the last is read on reference, and the mixers' and experts' outputs go the other way.
  EXPECT_EQ(copies, 33u);
  EXPECT_THAT(explain_text(plan, false), HasSubstr("33 copies"));
}

TEST(Copies, ThroughMemoryThatTheHostCannotSeeGiveTheSameBits) {
  const TestModel alone = demo_on("reference"), mixed = demo_on("far,reference");
  ASSERT_NE(mixed.model, nullptr);
  EXPECT_TRUE(same_bits(some_logits(*alone.model), some_logits(*mixed.model)));
}

}  // namespace
}  // namespace switchyard
