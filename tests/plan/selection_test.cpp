// SPDX-License-Identifier: Apache-2.0
// Which backend runs an operation, under one name, a list, and auto.
#include "tests/plan/support.h"

namespace switchyard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string who_adds(const Use& use) { return decision(plan_of(demo(use), 1), "layers.0.mixer_sum").chosen; }

Use parts(const std::string& backend, std::vector<Setting> settings) {
  return {backend, {}, {{"parts", std::move(settings)}}};
}

TEST(Choice, OneBackendAloneMustRunEverything) {
  const auto state = try_demo({"far"});
  ASSERT_FALSE(state.ok());
  EXPECT_EQ(state.status().code(), Code::unsupported);
  EXPECT_EQ(state.status().message(),
            "no chosen backend can run layers.0.gated_delta (gated_delta) in every step size: far:0: no kernel for "
            "gated_delta");
  const auto other = try_demo(parts("parts", {{"kernels", "gated_delta.recurrent attention.plain"}}));
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.status().message(),
            "no chosen backend can run embedding (embedding): parts:0: no kernel for embedding");
}

TEST(Choice, NamesTheOperationThatNobodyRunsNotOneThatIsFused) {
  // linear and add are covered by linear_add; moe is not covered at all
  const auto t = try_demo(parts("parts", {{"kernels",
                                           "gated_delta.recurrent attention.plain embedding.plain "
                                           "rms_norm.plain linear.plain linear_add.plain lm_head.plain"}}));
  ASSERT_FALSE(t.ok());
  EXPECT_THAT(t.status().message(), HasSubstr("no chosen backend can run layers.0.moe (moe): "));
}

TEST(Choice, OfAListIsTheEarliestThatCan) {
  // narrow, far and reference all add; the order decides, not the cost
  EXPECT_EQ(who_adds({"far,narrow,reference"}), "far:0 add.far");
  EXPECT_EQ(who_adds({"narrow,far,reference"}), "narrow:0 add.narrow");
  EXPECT_THAT(who_adds({"reference,far"}), HasSubstr("reference:0"));
  EXPECT_EQ(who_adds(parts("parts,far,reference", {{"kernels", "add.plain"}, {"cost", "1000"}})),
            "parts:0 parts.add.plain");
  EXPECT_EQ(who_adds(parts("parts,far,reference", {{"kernels", "add.plain"}, {"refuse", "1"}})), "far:0 add.far");
}

TEST(Choice, WithinABackendIsTheCheapest) {
  EXPECT_EQ(who_adds(parts("parts,reference", {{"kernels", "add.plain"}, {"twin", "add.plain"}})),
            "parts:0 parts.add.plain.twin");
  const TestModel t = demo(parts("parts,reference", {{"kernels", "add.plain"}, {"twin", "add.plain"}}));
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_THAT(explain_text(plan, true), AllOf(HasSubstr("parts:0 parts.add.plain as composite: can, 1.0 us\n"),
                                              HasSubstr("parts:0 parts.add.plain.twin as composite: can, 0.5 us\n")));
}

// A kernel for two operations in one counts, though its backend runs neither alone.
TEST(Choice, OfAListTakesFusedKernelsOfAnEarlierBackend) {
  const Use use = parts("parts,reference", {{"kernels", "moe_add.grouped"}, {"cost", "100000"}});
  const TestModel t = demo(use), alone = demo({"reference"});
  ASSERT_NE(t.model, nullptr);
  EXPECT_EQ(count(plan_of(t, 1), "parts.moe_add.grouped"), 8u);
  EXPECT_TRUE(same_bits(some_logits(*alone.model), some_logits(*t.model)));
  EXPECT_EQ(count(plan_of(demo(parts("reference,parts", use.settings.at("parts"))), 1), "parts.moe_add.grouped"), 0u);
}

// Pieces on two devices, where neither has them all.
TEST(Choice, MixesThePiecesOfAnOperationThatNobodyRunsAlone) {
  Use use = parts("parts,reference", {{"kernels", "silu_mul.plain"}});
  use.rules = {"moe=!moe.grouped", "moe_add=!moe_add.grouped", "silu_mul=!silu_mul.plain"};
  const TestModel t = demo(use), alone = demo({"reference"});
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_EQ(count(plan, "parts.silu_mul.plain"), 8u);
  EXPECT_EQ(count(plan, "experts.grouped"), 8u);
  EXPECT_EQ(decision(plan, "layers.0.moe").reason, "decomposed, mixed");
  EXPECT_TRUE(same_bits(some_logits(*alone.model), some_logits(*t.model)));
}

// Where the last resort lacks a piece, it gets only those that no other has, whatever they cost there.
TEST(Choice, OfPiecesTakesTheLastResortLast) {
  Use use = parts("auto", {{"kernels", "silu_mul.plain sigmoid_scale_add.plain"}, {"cost", "1000000"}});
  use.found = {"reference", "parts"};
  use.rules = {"moe=!moe.grouped", "moe_add=!moe_add.grouped", "sigmoid_scale_add=!sigmoid_scale_add.plain"};
  const TestModel t = demo(use);
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_EQ(count(plan, "parts.sigmoid_scale_add.plain"), 8u);
  EXPECT_EQ(count(plan, "parts.silu_mul.plain"), 8u);
  EXPECT_EQ(count(plan, "experts.grouped"), 8u);
}

// What an operation's pieces cost decides where its states are.
TEST(Choice, CountsWhatPiecesCost) {
  const auto who = [](const char* cost) {
    Use use = parts("auto", {{"kernels",
                              "linear.plain rms_norm.plain causal_conv.plain delta_gates.plain "
                              "delta_rule.recurrent gated_rms_norm.plain"},
                             {"cost", cost}});
    use.found = {"ranger", "parts"};
    use.settings["ranger"] = {{"claim", "silent"}};
    return decision(plan_of(demo(use), 1), "layers.0.gated_delta").chosen;
  };
  EXPECT_THAT(who("0"), HasSubstr("parts:0 parts.delta_rule.recurrent"));
  EXPECT_EQ(who("1000000"), "ranger:0 gated_delta.recurrent");
}

// The cost of the copies counts: 16 sums are cheaper on far only if reference's stand-in is very slow at them.
TEST(Choice, OfAutoIsTheCheapestWithItsCopies) {
  const std::string all =
      "embedding.plain rms_norm.plain linear.plain gated_delta.recurrent attention.plain moe.grouped lm_head.plain "
      "add.plain";
  const auto use = [&](const char* cost) {
    Use u = parts("auto", {{"kernels", all}, {"cost", cost}});
    u.found = {"reference", "far", "parts"};
    return u;
  };
  EXPECT_EQ(who_adds(use("1")), "parts:0 parts.add.plain");
  EXPECT_EQ(who_adds(use("1000")), "far:0 add.far");
}

// A hop costs by its bytes, too: what is worth it for one row is not for 512.
TEST(Choice, OfAutoCountsTheBytesOfCopies) {
  Use use = parts("auto", {{"kernels",
                            "embedding.plain rms_norm.plain linear.plain gated_delta.recurrent attention.plain "
                            "moe.grouped lm_head.plain add.plain"},
                           {"cost", "50"}});
  use.found = {"reference", "far", "parts"};
  const TestModel t = demo(use);
  ASSERT_NE(t.model, nullptr);
  EXPECT_EQ(decision(plan_of(t, 1), "layers.0.mixer_sum").chosen, "far:0 add.far");
  EXPECT_EQ(decision(plan_of(t, 512), "layers.0.mixer_sum").chosen, "parts:0 parts.add.plain");
}

// A kernel for two operations counts as two in the list's order, so that being one makes it no better than its parts.
TEST(Choice, OfAListCountsAFusedKernelTwice) {
  const auto use = [](const char* dear) {
    Use u = parts("narrow,parts,reference", {{"kernels", "linear.plain add.plain linear_add.plain"}, {"dear", dear}});
    u.settings["narrow"] = {{"kernel", "rms_norm.narrow"}};  // the first of the list; it has neither
    return u;
  };
  EXPECT_EQ(count(plan_of(demo(use("")), 1), "parts.linear_add.plain"), 8u);
  EXPECT_EQ(count(plan_of(demo(use("linear_add.plain")), 1), "parts.linear_add.plain"), 0u);
}

TEST(Choice, OfAutoLeavesReferenceOut) {
  const TestModel t = demo({"auto", {}, {}, {"reference", "far", "ranger"}});
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  for (const PlanNode& n : plan.nodes) EXPECT_NE(plan.device_names[n.device], "reference:0");
  EXPECT_THAT(plan.warnings, IsEmpty());
}

TEST(Choice, WarnsOncePerKindWhereOnlyTheLastResortCan) {
  const TestModel t = demo({"auto", {}, {}, {"far", "reference"}});
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_THAT(
      plan.warnings,
      ::testing::ElementsAre(
          "attention runs on reference:0, which is slow: no other backend took layers.3.attention and 1 more of its "
          "kind",
          "embedding runs on reference:0, which is slow: no other backend took embedding",
          "gated_delta runs on reference:0, which is slow: no other backend took layers.0.gated_delta and 5 more of "
          "its kind",
          "linear runs on reference:0, which is slow: no other backend took layers.0.qkv and 15 more of its kind",
          "lm_head runs on reference:0, which is slow: no other backend took logits",
          "moe runs on reference:0, which is slow: no other backend took layers.0.moe and 7 more of its kind",
          "rms_norm runs on reference:0, which is slow: no other backend took layers.0.mixer_norm and 16 more of its "
          "kind"));
  const TestModel with_alone = demo({"auto", {}, {}, {"reference"}});
  ASSERT_NE(with_alone.model, nullptr);
  const Plan alone = plan_of(with_alone, 1);
  EXPECT_THAT(alone.warnings,
              ::testing::ElementsAre("everything runs on reference:0, which is slow: no other backend was found"));
  EXPECT_THAT(plan_of(demo({"reference"}), 1).warnings, SizeIs(0));  // requested by name
}

}  // namespace
}  // namespace switchyard
