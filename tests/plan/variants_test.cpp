// --variant: what is forced runs, what is forbidden does not, and pieces give the bits of the whole.
#include "tests/plan/support.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

struct Rules {
  const char* name;
  std::vector<std::string> rules;
};

class Pieces : public ::testing::TestWithParam<Rules> {};

TEST_P(Pieces, GiveTheBitsOfTheWhole) {
  static const std::vector<float> whole = some_logits(*demo_on("reference").model);
  const TestModel t = demo_on("reference", GetParam().rules);
  ASSERT_NE(t.model, nullptr);
  for (const std::string& rule : GetParam().rules) {
    const VariantRule r = *parse_variant_rule(rule);
    const Plan plan = plan_of(t, 64);
    for (const PlanNode& n : plan.nodes) EXPECT_NE(std::string(n.kernel->name), r.kernel);
  }
  EXPECT_TRUE(same_bits(whole, some_logits(*t.model)));
}

INSTANTIATE_TEST_SUITE_P(
    Of, Pieces,
    ::testing::Values(Rules{"Fused",
                            {"add_rms_norm=!add_rms_norm.plain", "rms_norm_linear=!rms_norm_linear.plain",
                             "linear_add=!linear_add.plain", "moe_add=!moe_add.grouped"}},
                      Rules{"Attention", {"attention=!attention.plain"}},
                      Rules{"GatedDelta", {"gated_delta=!gated_delta.recurrent"}},
                      Rules{"Moe", {"moe=!moe.grouped", "moe_add=!moe_add.grouped"}},
                      Rules{"LmHead", {"lm_head=!lm_head.plain"}},
                      Rules{"All",
                            {"attention=!attention.plain", "gated_delta=!gated_delta.recurrent", "moe=!moe.grouped",
                             "moe_add=!moe_add.grouped", "lm_head=!lm_head.plain", "add_rms_norm=!add_rms_norm.plain",
                             "rms_norm_linear=!rms_norm_linear.plain", "linear_add=!linear_add.plain"}}),
    [](const auto& param) { return param.param.name; });

TEST(Variants, ForcedKernelsRun) {
  const TestModel t = demo_on("reference", {"linear=linear.plain"});
  ASSERT_NE(t.model, nullptr);
  EXPECT_THAT(decision(plan_of(t, 1), "layers.0.qkv").chosen, HasSubstr("linear.plain"));
}

TEST(Variants, AKernelThatNobodyHasIsRefusedByName) {
  DiscoveryOptions discovery;
  discovery.search_path = SWITCHYARD_TEST_BACKENDS;
  const Host host(1);
  const Registry registry = Registry::discover(Os::real(), discovery, host);
  auto selection = registry.select("reference");
  ASSERT_TRUE(selection.ok());
  auto program = Program::load(Os::real(), kDemo);
  ASSERT_TRUE(program.ok());
  ModelOptions options;
  options.variants.push_back(*parse_variant_rule("linear=linear.warp"));
  const auto model = Model::create(std::make_shared<const Program>(std::move(*program)), selection->devices,
                                   selection->policy, options);
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.status().message(), HasSubstr("linear.warp"));
  EXPECT_EQ(model.status().message().find('\n'), std::string::npos);
}

TEST(Variants, MalformedRulesAreUsageErrors) {
  for (const char* text : {"", "linear", "linear=", "linear=!", "warp=x"}) {
    const auto rule = parse_variant_rule(text);
    ASSERT_FALSE(rule.ok()) << text;
    EXPECT_EQ(rule.status().code(), Code::usage) << text;
  }
}

TEST(Revision, NewerThanEveryKernelIsRefusedByOperationAndRevision) {
  const auto planner = planner_on("reference", [](Graph& graph) { graph.ops[1].revision = 2; });
  ASSERT_FALSE(planner.ok());
  EXPECT_THAT(planner.status().message(), HasSubstr("layers.0.mixer_norm (rms_norm)"));
  EXPECT_THAT(planner.status().message(), HasSubstr("implements revision 1, the program needs 2"));
}

TEST(Revision, OfAnOperationWithStatesIsRefusedToo) {
  const auto planner = planner_on("reference", [](Graph& graph) { graph.ops[3].revision = 7; });
  ASSERT_FALSE(planner.ok());
  EXPECT_THAT(planner.status().message(), HasSubstr("gated_delta"));
  EXPECT_THAT(planner.status().message(), HasSubstr("the program needs 7"));
}

}  // namespace
}  // namespace switchyard
