// SPDX-License-Identifier: Apache-2.0
// swy.range/1: operations claimed as one, against the operations one by one.
#include "tests/plan/support.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

size_t ranges(const Plan& plan) {
  return static_cast<size_t>(
      std::count_if(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& n) { return !n.range_ops.empty(); }));
}

Use ranger(const std::string& claim) { return {"ranger", {}, {{"ranger", {{"claim", claim}}}}}; }

TEST(Range, ClaimsTwoLayersAtATime) {
  const TestModel t = demo({"ranger"});
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 64);
  size_t covered = 0;
  for (const PlanNode& n : plan.nodes) {
    covered += n.range_ops.size();
    EXPECT_EQ(n.kernel == nullptr, !n.range_ops.empty());
  }
  EXPECT_EQ(ranges(plan), 4u);
  EXPECT_EQ(covered, 64u);
  EXPECT_EQ(plan.nodes.size(), 4 + 3u);  // embedding, final norm, lm_head
}

TEST(Range, GivesTheBitsOfItsOperations) {
  const TestModel whole = demo({"ranger"}), apart = demo({"ranger", {"range=!swy.range/1"}}),
                  other = demo({"reference"});
  ASSERT_NE(whole.model, nullptr);
  ASSERT_NE(apart.model, nullptr);
  EXPECT_EQ(ranges(plan_of(apart, 1)), 0u);
  const std::vector<float> logits = some_logits(*whole.model);
  EXPECT_TRUE(same_bits(some_logits(*apart.model), logits));
  EXPECT_TRUE(same_bits(some_logits(*other.model), logits));
}

TEST(Range, MayEndWithTheHead) {
  const TestModel t = demo(ranger("head")), other = demo({"reference"});
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  ASSERT_EQ(ranges(plan), 1u);
  ASSERT_EQ(plan.nodes.back().range_ops.size(), 2u);
  EXPECT_EQ(plan.nodes.back().range_ops.back().id, static_cast<uint32_t>(SWY_OP_LM_HEAD));
  EXPECT_TRUE(plan.nodes.back().head);
  EXPECT_TRUE(same_bits(some_logits(*t.model), some_logits(*other.model)));
}

TEST(Range, IsExplained) {
  const TestModel t = demo({"ranger"});
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_EQ(decision(plan, "layers.0.mixer_norm").chosen, "ranger:0 swy.range/1");
  EXPECT_EQ(decision(plan, "layers.1.moe_sum").reason, "range of 16");
  const std::string text = explain_text(plan, true);
  EXPECT_THAT(text, HasSubstr("ranger:0 swy.range/1 as range of 16: can, 0.5 us: two layers in one\n"));
  EXPECT_THAT(text, HasSubstr("ranger:0 swy.range/1 as range: no two whole layers begin here\n"));
}

struct Bad {
  const char* claim;
  const char* said;
};

class BadClaim : public ::testing::TestWithParam<Bad> {};

TEST_P(BadClaim, IsTurnedDownWithItsReason) {
  const TestModel t = demo(ranger(GetParam().claim));
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_EQ(ranges(plan), 0u);
  EXPECT_THAT(explain_text(plan, true), HasSubstr(GetParam().said));
  EXPECT_THAT(decision(plan, "layers.0.mixer_norm").chosen, Not(HasSubstr("swy.range")));
}

INSTANTIATE_TEST_SUITE_P(Of, BadClaim,
                         ::testing::Values(Bad{"greedy", "as range: takes 67 operations where 66 were offered"},
                                           Bad{"one", "as range: takes one operation; a range has at least two"},
                                           Bad{"free", "as range: cannot estimate its cost: nan us"},
                                           Bad{"endless", "as range: cannot estimate its cost: inf us"},
                                           Bad{"silent", "as range: declined without a reason"}),
                         [](const auto& param) { return std::string(param.param.claim); });

TEST(Range, OfABackendThatRunsNothingAlone) {
  Use use = ranger("tail");
  use.backend = "ranger,reference";
  use.settings["ranger"].push_back({"alone", "0"});
  const TestModel t = demo(use), alone = demo({"reference"});
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_EQ(ranges(plan), 8u);
  EXPECT_EQ(decision(plan, "layers.0.moe").chosen, "ranger:0 swy.range/1");
  EXPECT_TRUE(same_bits(some_logits(*alone.model), some_logits(*t.model)));
}

// It would take whole layers, but their states live elsewhere.
TEST(Range, LeavesStatesWhereTheyAre) {
  Use use = ranger("layers");
  use.backend = "ranger,reference";
  use.settings["ranger"].push_back({"alone", "0"});
  const TestModel t = demo(use);
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_EQ(ranges(plan), 0u);
  for (const PlanNode& n : plan.nodes) {
    for (const uint32_t s : n.op.states) EXPECT_EQ(plan.state_device[s], n.device) << n.op.name;
  }
}

// The order of the list decides, whatever a later backend promises.
TEST(Range, OfALaterBackendDoesNotTakeFromAnEarlierOne) {
  Use use = ranger("tail");
  use.backend = "reference,ranger";
  const TestModel t = demo(use);
  ASSERT_NE(t.model, nullptr);
  EXPECT_EQ(ranges(plan_of(t, 1)), 0u);
}

// The range was claimed for f32, and the norm before it gives bf16.
TEST(Range, GetsItsOperandsInTheTypesThatItWasClaimedFor) {
  Use use = ranger("tail");
  use.backend = "narrow,ranger,reference";
  use.settings["narrow"] = {{"kernel", "rms_norm.narrow"}};
  const TestModel t = demo(use);
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_EQ(ranges(plan), 8u);
  for (const PlanNode& n : plan.nodes) {
    if (n.range_ops.empty()) continue;
    for (const uint32_t v : n.op.inputs) EXPECT_EQ(plan.graph.values[v].dtype, SWY_F32) << plan.graph.values[v].name;
    EXPECT_EQ(plan.graph.values[n.range_ops[0].inputs[0]].dtype, SWY_F32);
  }
  use.rules = {"range=!swy.range/1"};
  const TestModel apart = demo(use);
  EXPECT_TRUE(same_bits(some_logits(*apart.model), some_logits(*t.model)));
}

// Of the demo's sums only the last is read by its norm alone: the next layer adds to the others.
TEST(Range, IsToldWhatIsReadOutside) {
  for (const auto& [claim, why] : {std::pair("sums", "range: others read the sum\n"),
                                   std::pair("deaf", "is read outside, which the backend does not ask about\n")}) {
    const TestModel t = demo(ranger(claim)), alone = demo({"reference"});
    ASSERT_NE(t.model, nullptr);
    const Plan plan = plan_of(t, 1);
    EXPECT_EQ(ranges(plan), 1u) << claim;
    EXPECT_EQ(decision(plan, "layers.7.moe_sum").reason, "range of 2");
    EXPECT_THAT(explain_text(plan, true), HasSubstr(why));
    EXPECT_TRUE(same_bits(some_logits(*alone.model), some_logits(*t.model)));
  }
}

TEST(Range, LeavesAForcedKernelAlone) {
  Use use = ranger("layers");
  use.rules = {"gated_delta=gated_delta.recurrent"};
  const TestModel t = demo(use);
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_EQ(ranges(plan), 0u);
  EXPECT_EQ(count(plan, "gated_delta.recurrent"), 6u);
  EXPECT_THAT(explain_text(plan, true), HasSubstr("no two whole layers begin here"));
}

}  // namespace
}  // namespace switchyard
