// SPDX-License-Identifier: Apache-2.0
// Bytes and operations of the demo model, counted by hand: 256 wide, 6 gated-delta and 2 attention layers, 16 experts
// of 128 of which 4 are chosen, a shared expert, i4 with one scale per row, embedding and head of 4,096 rows.
#include "bench/workload.h"

#include <gtest/gtest.h>

#include "core/base/os.h"
#include "core/engine/session.h"

namespace switchyard::bench {
namespace {

Program demo() {
  auto program = Program::load(Os::real(), SWITCHYARD_DEMO_MODEL);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return std::move(*program);
}

const GraphOp& first(const Graph& graph, swy_op_id id) {
  return *std::find_if(graph.ops.begin(), graph.ops.end(), [&](const GraphOp& op) { return op.id == id; });
}

TEST(Workload, OfAHeadIsItsMatrix) {
  const Program program = demo();
  const Graph graph = graph_of(program);
  const Workload w = workload_of(graph, first(graph, SWY_OP_LM_HEAD), {64, 3, 64});
  EXPECT_EQ(w.products, 3.0 * 4096 * 256) << "only the rows whose logits are wanted";
  EXPECT_EQ(w.weight_bytes, 4096 * (256 / 2 + 2));
  EXPECT_EQ(w.state_bytes, 0);
}

TEST(Workload, OfAnEmbeddingIsItsRows) {
  const Program program = demo();
  const Graph graph = graph_of(program);
  EXPECT_EQ(workload_of(graph, first(graph, SWY_OP_EMBEDDING), {7, 1, 7}).weight_bytes, 7 * (256 / 2 + 2));
}

TEST(Workload, ExpertsAreReadOnceHoweverManyRowsTheyGet) {
  const Program program = demo();
  const Graph graph = graph_of(program);
  const auto moe = std::find_if(graph.ops.begin(), graph.ops.end(),
                                [](const GraphOp& op) { return op.id == SWY_OP_MOE || op.id == SWY_OP_MOE_ADD; });
  ASSERT_NE(moe, graph.ops.end());
  const auto at = [&](uint32_t rows) { return workload_of(graph, *moe, {rows, 1, rows}); };
  const double one = at(1).weight_bytes, all = at(10000).weight_bytes;
  const double experts = 16.0 * 3 * 128 * 256 / 2;  // quants alone
  EXPECT_NEAR(all - one, experts * 12 / 16, experts * 12 / 16 * 0.03) << "one row reads 4 of 16";
  EXPECT_LT(at(8).weight_bytes, all);
  EXPECT_NEAR(at(8).products, 8 * at(1).products, 1);
}

TEST(Workload, AttentionGrowsWithItsContext) {
  const Program program = demo();
  const Graph graph = graph_of(program);
  const GraphOp& op = first(graph, SWY_OP_ATTENTION);
  const Workload near = workload_of(graph, op, {1, 1, 101}), far = workload_of(graph, op, {1, 1, 1101});
  EXPECT_EQ(far.weight_bytes, near.weight_bytes);
  EXPECT_EQ(far.mixing - near.mixing, 2.0 * 1000 * 4 * 64);
  EXPECT_GT(far.state_bytes - near.state_bytes, 1000.0 * 2 * 2 * 64 * 2 - 1);
}

TEST(Workload, CountsStatesAsTheDeviceKeepsThem) {
  const Program program = demo();
  const Graph graph = graph_of(program);
  for (const swy_op_id id : {SWY_OP_ATTENTION, SWY_OP_GATED_DELTA}) {
    const GraphOp& op = first(graph, id);
    StepShape shape{1, 1, 101};
    const double whole = workload_of(graph, op, shape).state_bytes;
    shape.state_shares.assign(graph.states.size(), 0.25);
    EXPECT_DOUBLE_EQ(workload_of(graph, op, shape).state_bytes, whole / 4);
  }
}

TEST(Workload, OfAStepIsTheSumOfItsOperations) {
  const Program program = demo();
  const StepShape shape{16, 1, 48};
  double bytes = 0, operations = 0;
  const Graph graph = graph_of(program);
  for (const GraphOp& op : graph.ops) {
    bytes += workload_of(graph, op, shape).bytes();
    operations += workload_of(graph, op, shape).operations();
  }
  EXPECT_DOUBLE_EQ(workload_of(program, shape).bytes(), bytes);
  EXPECT_DOUBLE_EQ(workload_of(program, shape).operations(), operations);
}

}  // namespace
}  // namespace switchyard::bench
