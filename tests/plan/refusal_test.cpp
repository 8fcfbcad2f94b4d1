// SPDX-License-Identifier: Apache-2.0
// Kernels that are chosen and then refuse in prepare or record: the step is planned again without them.
#include "tests/plan/support.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// All kernels of the backend that can run a projection.
constexpr char kLinear[] = "linear.plain linear_add.plain rms_norm_linear.plain";

Use unsure(std::vector<Setting> settings) {
  Use use{"unsure,reference"};
  use.settings["unsure"] = std::move(settings);
  use.found.push_back("unsure");
  return use;
}

size_t nodes_of(const Plan& plan, uint32_t op, const std::string& device) {
  return static_cast<size_t>(std::count_if(plan.nodes.begin(), plan.nodes.end(), [&](const PlanNode& n) {
    return n.copy_from < 0 && n.op.id == op && plan.device_names[n.device] == device;
  }));
}

TEST(Refusal, InPrepareGivesTheOperationToTheNextBackend) {
  const TestModel t = demo(unsure({{"prepare", kLinear}})), alone = demo({"reference"});
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_EQ(nodes_of(plan, SWY_OP_LINEAR, "unsure:0"), 0u);
  EXPECT_GT(nodes_of(plan, SWY_OP_LINEAR, "reference:0"), 0u);
  EXPECT_GT(nodes_of(plan, SWY_OP_RMS_NORM, "unsure:0"), 0u);
  EXPECT_THAT(explain_text(plan, true), HasSubstr("unsure:0 linear.plain as composite: dropped: it refused in "
                                                  "prepare: no tile of 1 rows fits\n"));
  EXPECT_TRUE(same_bits(some_logits(*alone.model), some_logits(*t.model)));
}

// The states were to be on this device; without the kernel they are on the next.
TEST(Refusal, InPrepareMovesStatesToTheNextBackend) {
  const TestModel t = demo(unsure({{"prepare", "gated_delta.recurrent delta_rule.recurrent"}})),
                  alone = demo({"reference"});
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  EXPECT_EQ(nodes_of(plan, SWY_OP_GATED_DELTA, "unsure:0"), 0u);
  EXPECT_EQ(nodes_of(plan, SWY_OP_GATED_DELTA, "reference:0"), 6u);
  EXPECT_EQ(nodes_of(plan, SWY_OP_ATTENTION, "unsure:0"), 2u);
  EXPECT_TRUE(same_bits(some_logits(*alone.model), some_logits(*t.model)));
}

// A backend whose delta rule cannot leave rows pending keeps the states, though another one could.
TEST(Refusal, OfPendingRowsMovesNoStates) {
  for (const char* first : {"gated_delta.recurrent", ""}) {
    const Use use = unsure({{"first", first}});
    TestModel t;
    t.registry = std::make_unique<Registry>(find_backends(use));
    auto selection = t.registry->select(use.backend);
    ASSERT_TRUE(selection.ok());
    ModelOptions options;
    options.drafts = 7;
    options.chunk = 64;
    auto model = Model::create(std::make_shared<const Program>(*Program::load(Os::real(), kDemo)),
                               std::move(selection->devices), selection->policy, options);
    ASSERT_TRUE(model.ok()) << model.status().message();
    t.model = std::move(*model);
    EXPECT_EQ(nodes_of(plan_of(t, 1), SWY_OP_GATED_DELTA, "unsure:0"), 6u) << first;
    EXPECT_EQ(t.model->pending_rows(), *first == '\0' ? 8u : 0u);
  }
}

TEST(Refusal, InRecordGivesTheOperationToTheNextBackend) {
  const TestModel t = demo(unsure({{"record", kLinear}})), alone = demo({"reference"});
  ASSERT_NE(t.model, nullptr);
  EXPECT_GT(nodes_of(plan_of(t, 1), SWY_OP_RMS_NORM_LINEAR, "unsure:0"), 0u);  // nothing was recorded so far
  EXPECT_TRUE(same_bits(some_logits(*alone.model), some_logits(*t.model)));
}

TEST(Refusal, OfTheOnlyBackendIsAnErrorWithItsReason) {
  Use use = unsure({{"prepare", kLinear}});
  use.backend = "unsure";
  const auto t = try_demo(use);
  ASSERT_FALSE(t.ok());
  EXPECT_EQ(t.status().code(), Code::unsupported);
  EXPECT_THAT(t.status().message(), HasSubstr("unsure:0 linear.plain: dropped: it refused in prepare: no tile of"));
  EXPECT_THAT(t.status().message(), Not(HasSubstr("\n")));
}

TEST(Refusal, IsNoFailureOfAnotherKind) {
  const auto t = try_demo(unsure({{"prepare", kLinear}, {"status", std::to_string(SWY_INTERNAL)}}));
  ASSERT_FALSE(t.ok());
  EXPECT_EQ(t.status().code(), Code::internal);
  EXPECT_THAT(t.status().message(), HasSubstr("unsure:0: preparing layers.0."));
  EXPECT_THAT(t.status().message(), HasSubstr("no tile of 1 rows fits"));

  const TestModel u = demo(unsure({{"record", kLinear}, {"status", std::to_string(SWY_INTERNAL)}}));
  ASSERT_NE(u.model, nullptr);
  auto session = u.model->session();
  ASSERT_TRUE(session.ok());
  const std::vector<int32_t> ids = {1, 2, 3};
  const auto fed = (*session)->feed(ids);
  ASSERT_FALSE(fed.ok());
  EXPECT_EQ(fed.status().code(), Code::internal);
  EXPECT_THAT(fed.status().message(), HasSubstr("unsure:0: recording layers.0."));
  EXPECT_THAT(fed.status().message(), HasSubstr("the compiler gave up"));
}

}  // namespace
}  // namespace switchyard
