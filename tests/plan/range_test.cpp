// swy.range/1: two layers claimed as one, against the operations one by one.
#include "tests/plan/support.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

TEST(Range, ClaimsTwoLayersAtATime) {
  const TestModel t = demo_on("ranger");
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 64);
  size_t ranges = 0, covered = 0;
  for (const PlanNode& n : plan.nodes) {
    if (n.range_ops.empty()) continue;
    ++ranges;
    covered += n.range_ops.size();
    EXPECT_EQ(n.kernel, nullptr);
  }
  EXPECT_EQ(ranges, 4u);
  EXPECT_EQ(covered, 64u);
  EXPECT_EQ(plan.nodes.size(), 4 + 3u);  // embedding, final norm, lm_head
}

TEST(Range, GivesTheBitsOfItsOperations) {
  const TestModel whole = demo_on("ranger"), apart = demo_on("reference");
  ASSERT_NE(whole.model, nullptr);
  EXPECT_TRUE(same_bits(some_logits(*apart.model), some_logits(*whole.model)));
}

TEST(Range, IsExplained) {
  const TestModel t = demo_on("ranger");
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_THAT(decision(plan, "layers.0.mixer_norm").chosen, HasSubstr("swy.range/1"));
  EXPECT_THAT(decision(plan, "layers.1.moe_sum").reason, HasSubstr("range of 16"));
  const std::string text = explain_text(plan, true);
  EXPECT_THAT(text, HasSubstr("swy.range/1 as range of 16: can, 0.5 us"));
  EXPECT_THAT(text, HasSubstr("swy.range/1 as range: no two whole layers begin here"));
}

}  // namespace
}  // namespace switchyard
