// SPDX-License-Identifier: Apache-2.0
// --variant: a forced kernel runs, a forbidden one does not, and pieces give the bits of the whole.
#include "tests/plan/support.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

struct Rules {
  const char* name;
  std::vector<std::string> rules;
  std::string there, gone;  // kernels
  size_t times;             // that `there` runs
};

class Pieces : public ::testing::TestWithParam<Rules> {};

TEST_P(Pieces, GiveTheBitsOfTheWhole) {
  static const std::vector<float> whole = some_logits(*demo({"reference"}).model);
  const TestModel t = demo({"reference", GetParam().rules});
  ASSERT_NE(t.model, nullptr);
  for (const uint32_t rows : {1u, 64u}) {
    const Plan plan = plan_of(t, rows);
    EXPECT_EQ(count(plan, GetParam().gone), 0u);
    EXPECT_EQ(count(plan, GetParam().there), GetParam().times);
  }
  EXPECT_TRUE(same_bits(whole, some_logits(*t.model)));
}

INSTANTIATE_TEST_SUITE_P(
    Of, Pieces,
    ::testing::Values(
        Rules{"NormAndLinear", {"rms_norm_linear=!rms_norm_linear.plain"}, "linear.plain", "rms_norm_linear.plain", 8},
        Rules{"LinearAndAdd", {"linear_add=!linear_add.plain"}, "linear.plain", "linear_add.plain", 8},
        Rules{"MoeAndAdd", {"moe_add=!moe_add.grouped"}, "moe.grouped", "moe_add.grouped", 8},
        Rules{"AddAndNorm", {"add_rms_norm=add_rms_norm.plain"}, "add_rms_norm.plain", "moe_add.grouped", 16},
        Rules{"Attention", {"attention=!attention.plain"}, "attend.plain", "attention.plain", 2},
        Rules{"GatedDelta", {"gated_delta=!gated_delta.recurrent"}, "delta_rule.recurrent", "gated_delta.recurrent", 6},
        Rules{"Moe", {"moe=!moe.grouped", "moe_add=!moe_add.grouped"}, "experts.grouped", "moe.grouped", 8},
        Rules{"LmHead", {"lm_head=!lm_head.plain"}, "gather_rows.plain", "lm_head.plain", 1},
        Rules{"All",
              {"attention=!attention.plain", "gated_delta=!gated_delta.recurrent", "moe=!moe.grouped",
               "moe_add=!moe_add.grouped", "lm_head=!lm_head.plain", "add_rms_norm=!add_rms_norm.plain",
               "rms_norm_linear=!rms_norm_linear.plain", "linear_add=!linear_add.plain"},
              "add.plain",
              "linear_add.plain",
              16}),
    [](const auto& param) { return param.param.name; });

// A forced kernel is not swallowed by something larger that would be cheaper.
TEST(Variants, ForcedKernelsRunWhereverTheirOperationIs) {
  const TestModel with_free = demo({"reference"});
  ASSERT_NE(with_free.model, nullptr);
  const Plan free = plan_of(with_free, 1);
  EXPECT_EQ(count(free, "linear.plain"), 0u);  // all are fused
  const TestModel t = demo({"reference", {"linear=linear.plain"}});
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_EQ(decision(plan, "layers.0.qkv").chosen, "reference:0 linear.plain");
  EXPECT_EQ(count(plan, "linear.plain"), 16u);
  EXPECT_EQ(count(plan, "rms_norm_linear.plain") + count(plan, "linear_add.plain"), 0u);
  EXPECT_THAT(explain_text(plan, true), HasSubstr("--variant forces linear.plain for layers.0.qkv"));
}

TEST(Variants, AForcedFusionIsFormedThoughItIsDearer) {
  Use use{"parts,reference", {}, {{"parts", {{"kernels", "linear.plain add.plain"}, {"cost", "0.001"}}}}};
  EXPECT_EQ(count(plan_of(demo(use), 1), "linear_add.plain"), 0u);
  use.rules = {"linear_add=linear_add.plain"};
  EXPECT_EQ(count(plan_of(demo(use), 1), "linear_add.plain"), 8u);
}

TEST(Variants, AForcedKernelLeavesItsBackendsOrderBehind) {
  const Use use{"far,reference", {"add=add.plain"}};
  const TestModel t = demo(use);
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_EQ(count(plan, "add.plain"), 16u);
  EXPECT_EQ(plan.copies(), 0u);
  EXPECT_THAT(explain_text(plan, true), HasSubstr("far:0 add.far as composite: --variant forces add.plain\n"));
}

// Neither pieces nor another kernel replace a forced kernel that refuses.
TEST(Variants, AForcedKernelThatRefusesIsAnError) {
  const auto t = try_demo(
      {"parts,reference", {"moe=parts.moe.grouped"}, {{"parts", {{"kernels", "moe.grouped"}, {"refuse", "1"}}}}});
  ASSERT_FALSE(t.ok());
  EXPECT_THAT(t.status().message(),
              HasSubstr("no chosen backend can run layers.0.moe (moe): parts:0 parts.moe.grouped: "
                        "not 1 rows; reference:0 moe.grouped: --variant forces parts.moe.grouped"));
}

class Unknown : public ::testing::TestWithParam<const char*> {};

TEST_P(Unknown, KernelIsRefusedByName) {
  const std::string rule = GetParam();
  const auto t = try_demo({"reference", {rule}});
  ASSERT_FALSE(t.ok());
  EXPECT_EQ(t.status().code(), Code::usage);
  EXPECT_THAT(t.status().message(), HasSubstr("--variant " + rule + ": no chosen backend has such a kernel; for "));
  EXPECT_EQ(t.status().message().find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Variants, Unknown,
                         ::testing::Values("linear=linear.warp", "linear=!linear.warp", "attention=nosuch",
                                           "moe=linear.plain", "moe_add=nosuch", "range=!nosuch"));

TEST(Variants, AnUnknownKernelComesWithThoseThatThereAre) {
  EXPECT_EQ(try_demo({"reference", {"linear=linear.warp"}}).status().message(),
            "--variant linear=linear.warp: no chosen backend has such a kernel; for linear there is linear.plain");
  EXPECT_EQ(try_demo({"far,reference", {"add=!x"}}).status().message(),
            "--variant add=!x: no chosen backend has such a kernel; for add there is add.far, add.plain");
}

TEST(Variants, MalformedRulesAreUsageErrors) {
  for (const char* text : {"", "linear", "linear=", "linear=!", "warp=x"}) {
    const auto rule = parse_variant_rule(text);
    ASSERT_FALSE(rule.ok()) << text;
    EXPECT_EQ(rule.status().code(), Code::usage) << text;
  }
}

TEST(Revision, NewerThanEveryKernelIsRefusedByOperationAndRevision) {
  const auto t = plan_of_changed({"reference"}, [](Graph& graph) { graph.ops[1].revision = 2; });
  ASSERT_FALSE(t.ok());
  EXPECT_EQ(
      t.status().message(),
      "no chosen backend can run layers.0.mixer_norm (rms_norm): reference:0 rms_norm.plain: implements revision 1, "
      "the program needs 2");
}

TEST(Revision, OfAnOperationWithStatesIsRefusedToo) {
  const auto t = plan_of_changed({"reference"}, [](Graph& graph) { graph.ops[3].revision = 7; });
  ASSERT_FALSE(t.ok());
  EXPECT_THAT(t.status().message(), HasSubstr("(gated_delta) in every step size: reference:0 gated_delta.recurrent: "
                                              "implements revision 2, the program needs 7"));
}

}  // namespace
}  // namespace switchyard
