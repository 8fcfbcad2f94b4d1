// SPDX-License-Identifier: Apache-2.0
// A state lives on one device: one that runs all operations on it in every bucket.
#include "core/plan/pieces.h"
#include "tests/plan/support.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

Use parts(const std::string& backend, const std::string& kernels, const std::string& refused_rows) {
  return {backend, {}, {{"parts", {{"kernels", kernels}, {"refuse", refused_rows}}}}};
}

void expect_home(const TestModel& t, const std::string& op, const std::string& device) {
  for (const uint32_t rows : {1u, 16u, 64u, 512u}) {
    const Plan plan = plan_of(t, rows);
    size_t found = 0;
    for (const PlanNode& n : plan.nodes) {
      if (n.op.states.empty() || n.op.name.find(op) == std::string::npos) continue;
      ++found;
      EXPECT_EQ(plan.device_names[n.device], device) << n.op.name << " for " << rows;
      for (const uint32_t s : n.op.states) EXPECT_EQ(plan.state_device[s], n.device) << n.op.name;
    }
    EXPECT_GT(found, 0u);
  }
}

TEST(States, LiveOnTheEarliestThatRunsThemInEveryBucket) {
  const TestModel t = demo(parts("parts,reference", "attention.plain", "0"));
  ASSERT_NE(t.model, nullptr);
  expect_home(t, ".attention", "parts:0");
  expect_home(t, ".gated_delta", "reference:0");
}

// One step size in the middle is enough to lose a state.
TEST(States, DoNotLiveWhereOneBucketIsRefused) {
  for (const char* rows : {"1", "16", "512"}) {
    SCOPED_TRACE(rows);
    const TestModel t = demo(parts("parts,reference", "attention.plain gated_delta.recurrent", rows));
    ASSERT_NE(t.model, nullptr);
    expect_home(t, ".attention", "reference:0");
    expect_home(t, ".gated_delta", "reference:0");
  }
  const auto alone = try_demo(parts("parts", "embedding.plain attention.plain gated_delta.recurrent", "16"));
  ASSERT_FALSE(alone.ok());
  EXPECT_THAT(alone.status().message(), HasSubstr("in every step size"));
  EXPECT_THAT(alone.status().message(), HasSubstr("parts:0 parts.gated_delta.recurrent: not 16 rows"));
}

TEST(States, OfAutoAreCarriedByTheLastResortWhereOnlyThatTakesEveryBucket) {
  const TestModel t = demo({"auto",
                            {},
                            {{"parts", {{"kernels", "attention.plain gated_delta.recurrent"}, {"refuse", "16"}}}},
                            {"parts", "reference"}});
  ASSERT_NE(t.model, nullptr);
  expect_home(t, ".attention", "reference:0");
  for (const uint32_t rows : {1u, 16u}) {
    const Plan plan = plan_of(t, rows);
    EXPECT_EQ(decision(plan, "layers.3.attention").chosen, "reference:0 attention.plain");
    EXPECT_EQ(decision(plan, "layers.3.attention").reason, "composite");
    EXPECT_THAT(explain_text(plan, false), HasSubstr("warning: attention runs on reference:0"));
  }
}

// The graph of a program that was written in primitives: KV_APPEND and ATTEND share a cache.
TEST(States, ThatOperationsShareLiveWhereAllOfThemRun) {
  const auto in_pieces = [](Graph& graph) {
    swy_bucket bucket{};
    bucket.struct_size = sizeof bucket;
    bucket.rows = bucket.seqs = bucket.logit_rows = 1;
    std::vector<GraphOp> ops;
    for (const GraphOp& op : std::vector<GraphOp>(graph.ops)) {
      std::vector<GraphOp> pieces;
      if (op.id == SWY_OP_ATTENTION) pieces = decompose(graph, op, bucket);
      if (pieces.empty()) pieces = {op};
      ops.insert(ops.end(), pieces.begin(), pieces.end());
    }
    graph.ops = ops;
  };
  for (const char* kernel : {"attend.plain", "kv_append.plain"}) {
    SCOPED_TRACE(kernel);
    const auto t = plan_of_changed(parts("parts,reference", kernel, "0"), in_pieces);
    ASSERT_TRUE(t.ok()) << t.status().message();
    EXPECT_EQ(count(t->plan, std::string("parts.") + kernel), 0u);
    EXPECT_EQ(count(t->plan, kernel), 2u);
  }
  const auto both = plan_of_changed(parts("parts,reference", "attend.plain kv_append.plain", "0"), in_pieces);
  ASSERT_TRUE(both.ok()) << both.status().message();
  EXPECT_EQ(count(both->plan, "parts.attend.plain"), 2u);
  EXPECT_EQ(count(both->plan, "parts.kv_append.plain"), 2u);
}

}  // namespace
}  // namespace switchyard
