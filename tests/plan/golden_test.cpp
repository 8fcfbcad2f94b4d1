// The plan of the demo model on `reference`, kernel by kernel. A change here is a change of what runs: look at it, then
// record it anew with SWITCHYARD_RECORD=1 build/release/bin/plan_test --gtest_filter='Golden*'.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/plan/support.h"

namespace switchyard {
namespace {

std::string describe_plan(const Plan& plan) {
  size_t lists = 0;
  for (const PlanSegment& s : plan.segments) lists += s.copy ? 0 : 1;
  std::string text =
      fmt::format("rows {}, context {}\nkernels {}, lists {}, casts {}, copies {}, arena {} bytes\n", plan.bucket.rows,
                  plan.bucket.context, plan.nodes.size(), lists, plan.casts(), plan.copies(), plan.arena_bytes[0]);
  for (const PlanDecision& d : plan.decisions) {
    text += fmt::format("{} {}: {} ({})\n", d.op, d.op_kind, d.chosen, d.reason);
  }
  return text;
}

class Golden : public ::testing::TestWithParam<uint32_t> {};

TEST_P(Golden, PlanOfTheDemoModel) {
  ModelOptions options;
  options.chunk = 512;
  const TestModel t = make_model(kDemo, "reference", options);
  ASSERT_NE(t.model, nullptr);
  const std::string now = describe_plan(plan_of(t, GetParam()));
  const std::string path = fmt::format("{}/plan/demo-{}-rows.txt", SWITCHYARD_TEST_DATA, GetParam());
  if (std::getenv("SWITCHYARD_RECORD") != nullptr) std::ofstream(path) << now;
  std::ostringstream recorded;
  recorded << std::ifstream(path).rdbuf();
  EXPECT_EQ(now, recorded.str());
}

INSTANTIATE_TEST_SUITE_P(Rows, Golden, ::testing::Values(1u, 512u));

TEST(Plan, OfLogitsHasNoTraceOfTheSampler) {
  const TestModel t = demo_on("reference");
  ASSERT_NE(t.model, nullptr);
  const Plan plan = plan_of(t, 1);
  for (const PlanNode& n : plan.nodes) {
    EXPECT_NE(n.op.id, SWY_OP_SAMPLE);
    EXPECT_NE(n.op.id, SWY_OP_LM_HEAD_SAMPLE);
    EXPECT_NE(n.op.id, SWY_OP_TOP_CANDIDATES);
  }
  for (const GraphValue& v : plan.graph.values) EXPECT_NE(v.rows, SWY_ROWS_SAMPLE) << v.name;
  EXPECT_EQ(plan.bucket.sample_rows, 0u);
}

}  // namespace
}  // namespace switchyard
