// Which backend runs an operation, under one name, a list, and auto.
#include "tests/plan/support.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Choice, OneBackendAloneMustRunEverything) {
  const auto planner = planner_on("far", [](Graph&) {});
  ASSERT_FALSE(planner.ok());
  EXPECT_THAT(planner.status().message(), HasSubstr("gated_delta"));
  EXPECT_THAT(planner.status().message(), HasSubstr("far:0: no kernel for gated_delta"));
}

TEST(Choice, OfAListIsTheEarliestThatCan) {
  // narrow, far and reference all add; the order decides, not the cost
  EXPECT_THAT(decision(plan_of(demo_on("far,narrow,reference"), 1), "layers.0.mixer_sum").chosen, HasSubstr("far:0"));
  EXPECT_THAT(decision(plan_of(demo_on("narrow,far,reference"), 1), "layers.0.mixer_sum").chosen,
              HasSubstr("narrow:0"));
  EXPECT_THAT(decision(plan_of(demo_on("reference,far"), 1), "layers.0.mixer_sum").chosen, HasSubstr("reference:0"));
}

TEST(Choice, OfOperationsOnAStateIsOneDeviceInAllSteps) {
  const TestModel t = demo_on("far,ranger,reference");
  ASSERT_NE(t.model, nullptr);
  for (const uint32_t rows : {1u, 512u}) {
    const Plan plan = plan_of(t, rows);
    for (const PlanNode& n : plan.nodes) {
      for (const uint32_t s : n.op.states) EXPECT_EQ(n.device, plan.state_device[s]) << n.op.name;
    }
    for (const uint32_t device : plan.state_device) EXPECT_EQ(plan.device_names[device], "ranger:0");
  }
}

TEST(Choice, OfAutoLeavesReferenceOut) {
  const TestModel t = demo_on("auto");
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  for (const PlanNode& n : plan.nodes) EXPECT_THAT(plan.device_names[n.device], ::testing::Not("reference:0"));
  EXPECT_THAT(plan.warnings, IsEmpty());
}

TEST(Choice, WarnsWhereOnlyTheLastResortCan) {
  Host host(1);
  DiscoveryOptions discovery;
  discovery.libraries = {std::string(SWITCHYARD_FIXTURES) + "/switchyard_far.so",
                         std::string(SWITCHYARD_TEST_BACKENDS) + "/switchyard_reference.so"};
  const Registry registry = Registry::discover(Os::real(), discovery, host);
  auto selection = registry.select("auto");
  ASSERT_TRUE(selection.ok()) << selection.status().message();
  auto program = Program::load(Os::real(), kDemo);
  ASSERT_TRUE(program.ok());
  auto model =
      Model::create(std::make_shared<const Program>(std::move(*program)), selection->devices, selection->policy, {});
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto plan = (*model)->plan(1, 1, 256);
  ASSERT_TRUE(plan.ok());
  ASSERT_FALSE(plan->warnings.empty());
  EXPECT_EQ(plan->warnings[0], "embedding runs on reference:0, which is slow: no other backend supports it");
}

}  // namespace
}  // namespace switchyard
