// SPDX-License-Identifier: Apache-2.0
// Whether a step samples on the device is decided when it is planned; a plan that does not has no trace of it.
#include "tests/plan/support.h"

namespace switchyard {
namespace {

// Appends the operations of a sampling program: `sample`, and those that read only the logits.
void with_sampler(Graph& graph) {
  const uint32_t logits = graph.results[0];
  const auto value = [&](const char* name, swy_dtype dtype, uint64_t width) {
    graph.values.push_back({name, dtype, SWY_ROWS_SAMPLE, width});
    return static_cast<uint32_t>(graph.values.size() - 1);
  };
  GraphOp& sample = graph.ops.emplace_back();
  sample.name = "sampled";
  sample.id = SWY_OP_SAMPLE;
  sample.inputs = {logits};
  sample.outputs = {value("sampled", SWY_I32, 4)};
  graph.results.push_back(sample.outputs[0]);
  GraphOp& top = graph.ops.emplace_back();
  top.name = "candidates";
  top.id = SWY_OP_TOP_CANDIDATES;
  top.set_attrs(swy_top_candidates_attrs{sizeof(swy_top_candidates_attrs), 8, {}});
  top.inputs = {logits};
  top.outputs = {value("ids", SWY_I32, 8), value("best", SWY_F32, 8), value("sum", SWY_I32, 8)};
  graph.results.push_back(top.outputs[0]);
}

void without_logits(Graph& graph) {
  with_sampler(graph);
  graph.ops.pop_back();
  graph.results.erase(graph.results.begin());
}

TEST(Sampler, LeavesNoTraceInAPlanOfLogits) {
  const auto plain = plan_of_changed({"reference"}, [](Graph&) {});
  const auto t = plan_of_changed({"reference"}, with_sampler);
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  ASSERT_TRUE(t.ok()) << t.status().message();
  const Plan& plan = t->plan;
  EXPECT_EQ(plan.nodes.size(), plain->plan.nodes.size());
  EXPECT_EQ(plan.segments.size(), plain->plan.segments.size());
  EXPECT_EQ(plan.placements.size(), plain->plan.placements.size());
  EXPECT_EQ(plan.arena_bytes, plain->plan.arena_bytes);
  EXPECT_EQ(plan.graph.results, plain->plan.graph.results);
  EXPECT_EQ(explain_text(plan, true), explain_text(plain->plan, true));
  for (const PlanNode& n : plan.nodes) {
    for (const auto* list : {&n.op.inputs, &n.op.outputs}) {
      for (const uint32_t v : *list) EXPECT_NE(plan.graph.values[v].rows, SWY_ROWS_SAMPLE) << plan.graph.values[v].name;
    }
  }
}

TEST(Sampler, IsThereWhenRowsAreSampled) {
  const auto t = plan_of_changed({"reference"}, with_sampler, 1);
  ASSERT_TRUE(t.ok()) << t.status().message();
  EXPECT_EQ(count(t->plan, "sample.plain"), 1u);
  EXPECT_EQ(count(t->plan, "top_candidates.plain"), 1u);
  EXPECT_EQ(count(t->plan, "lm_head.plain"), 1u);  // the logits are read, so they are not fused away
  EXPECT_EQ(t->plan.segments.size(), 1u);
}

TEST(Sampler, IsInTheListOfAHeadApart) {
  const auto t = plan_of_changed({"reference"}, with_sampler, 1, HeadLists::apart);
  ASSERT_TRUE(t.ok()) << t.status().message();
  ASSERT_EQ(t->plan.segments.size(), 2u);
  EXPECT_FALSE(t->plan.segments[0].head);
  EXPECT_TRUE(t->plan.segments[1].head);
  EXPECT_EQ(t->plan.nodes[t->plan.segments[1].begin].kernel->name, std::string("lm_head.plain"));
  EXPECT_EQ(t->plan.segments[1].end, t->plan.nodes.size());
}

TEST(Sampler, IsFusedWithTheHeadWhenNobodyReadsTheLogits) {
  const auto t = plan_of_changed({"reference"}, without_logits, 1);
  ASSERT_TRUE(t.ok()) << t.status().message();
  EXPECT_EQ(count(t->plan, "lm_head_sample.plain"), 1u);
  EXPECT_EQ(decision(t->plan, "sampled").reason, "fused");
  const auto apart = plan_of_changed({"reference", {"lm_head_sample=!lm_head_sample.plain"}}, without_logits, 1);
  ASSERT_TRUE(apart.ok()) << apart.status().message();
  EXPECT_EQ(count(apart->plan, "sample.plain"), 1u);
}

}  // namespace
}  // namespace switchyard
