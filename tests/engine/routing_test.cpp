// SPDX-License-Identifier: Apache-2.0
#include "core/engine/routing.h"

#include <gmock/gmock.h>

#include <numeric>

#include "core/program/spec.h"
#include "tests/engine/fixture.h"

namespace switchyard {
namespace {

std::vector<int32_t> some_ids(size_t n) {
  std::vector<int32_t> ids(n);
  std::iota(ids.begin(), ids.end(), 40);
  return ids;
}

TEST(ExpertCounts, AreShares) {
  const ExpertCounts c{"moe", {0, 10, 20, 70}, 100};
  EXPECT_EQ(c.least(), 0);
  EXPECT_EQ(c.median(), 0.2);
  EXPECT_EQ(c.most(), 0.7);
  EXPECT_EQ(c.busiest_tenth(), 0.7) << "at least one";
  ExpertCounts many{"moe", std::vector<uint64_t>(40, 1), 40};
  EXPECT_EQ(many.busiest_tenth(), 0.1);
}

TEST(Routing, CountsWhatEveryTokenChooses) {
  ModelOptions options = with_context(64);
  options.routers = true;
  options.chunk = 16;  // three steps
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, "reference", options);
  ASSERT_NE(t.model, nullptr);
  const auto layers = count_experts(*t.model, some_ids(40));
  ASSERT_TRUE(layers.ok()) << layers.status().message();
  ASSERT_EQ(layers->size(), 8u);
  for (const ExpertCounts& l : *layers) {
    EXPECT_EQ(l.counts.size(), 16u);
    EXPECT_EQ(l.total, 40u * 4);
    EXPECT_EQ(std::accumulate(l.counts.begin(), l.counts.end(), uint64_t{0}), l.total);
    EXPECT_LE(*std::max_element(l.counts.begin(), l.counts.end()), 40u) << "a token chooses an expert once";
  }
  EXPECT_NE((*layers)[0].counts, (*layers)[1].counts);
}

// x -> acme.block/1 -> y, whose function names acme.moe/1, whose function is a mixture; and acme.copy/1, which has
// none.
TEST(Routing, SeesMixturesInsideOperationsWithAName) {
  Graph graph;
  for (const char* name : {"x", "y", "z"}) graph.values.push_back({name, SWY_F32, SWY_ROWS_STEP, 8});
  graph.weights.resize(3);
  const auto named = [](const char* name, uint32_t function, uint32_t from, uint32_t to,
                        std::vector<uint32_t> weights) {
    GraphOp op;
    op.name = op.named = name;
    op.id = SWY_OP_NAMED;
    op.function = function;
    op.inputs = {from};
    op.outputs = {to};
    op.weights = std::move(weights);
    return op;
  };
  GraphFunction block{"block", {}, {named("acme.moe/1", 1, 0, 1, {0, 1, 2})}, {0}, {0, 1, 2}, {}, {1}};
  GraphOp mixture;
  mixture.name = "mixture";
  mixture.id = SWY_OP_MOE;
  swy_moe_attrs attrs{};
  attrs.experts = 16, attrs.top_k = 4, attrs.width = 8;
  mixture.attrs = attr_bytes(attrs, SWY_OP_MOE, 1);
  mixture.inputs = {0};
  mixture.outputs = {1};
  mixture.weights = {0, 1, 2};
  GraphFunction moe{"moe", {}, {mixture}, {0}, {0, 1, 2}, {}, {1}};
  GraphOp add;
  add.id = SWY_OP_ADD;
  add.inputs = {0, 0};
  add.outputs = {1};
  GraphFunction copy{"copy", {}, {add}, {0}, {}, {}, {1}};
  for (GraphFunction* f : {&block, &moe, &copy}) f->values = {graph.values[0], graph.values[1]};
  graph.functions = std::make_shared<const std::vector<GraphFunction>>(std::vector{block, moe, copy});
  graph.ops = {named("acme.block/1", 0, 0, 1, {0, 1, 2}), named("acme.copy/1", 2, 1, 2, {})};
  const std::vector<Router> routers = add_routers(graph);
  ASSERT_EQ(routers.size(), 1u);
  EXPECT_EQ(routers[0].name, "acme.block/1/acme.moe/1/mixture");
  EXPECT_EQ(routers[0].experts, 16u);
  ASSERT_EQ(graph.ops.size(), 4u);
  EXPECT_EQ(graph.ops[0].id, SWY_OP_LINEAR);
  EXPECT_EQ(graph.ops[1].id, SWY_OP_ROUTER_TOPK);
  EXPECT_EQ(graph.ops[2].id, SWY_OP_MOE);
  EXPECT_EQ(graph.ops[3].named, "acme.copy/1") << "it stays one";
}

TEST(Routing, DoesNotChangeWhatTheModelSays) {
  ModelOptions options = with_context(64);
  const TestModel plain = make_model(SWITCHYARD_DEMO_MODEL, "reference", options);
  options.routers = true;
  const TestModel watched = make_model(SWITCHYARD_DEMO_MODEL, "reference", options);
  const auto logits = [](const TestModel& t) {
    const auto session = t.model->session();
    const auto out = (*session)->feed(some_ids(10));
    return std::vector<float>(out->begin(), out->end());
  };
  EXPECT_EQ(logits(plain), logits(watched));
  EXPECT_EQ(count_experts(*plain.model, some_ids(4)).status().code(), Code::unsupported);
}

}  // namespace
}  // namespace switchyard
