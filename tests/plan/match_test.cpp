// SPDX-License-Identifier: Apache-2.0
// What a kernel says of itself in its table, each against a step that it does not fit.
#include "core/plan/match.h"

#include <cmath>
#include <cstring>
#include <functional>

#include "tests/plan/support.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

swy_kernel changed;  // reference's ADD with one thing changed

uint32_t one_kernel(swy_device*) { return 1; }
const swy_kernel* the_changed(swy_device*, uint32_t) { return &changed; }
swy_status endless(swy_device*, const swy_kernel*, const swy_op*, const swy_bucket*, double* us, swy_error*) {
  *us = INFINITY;
  return SWY_OK;
}

// Why reference's kernel for `op` is refused when its table says so and the bucket is this; empty: it is not.
std::string refusal_of(const Graph& graph, const GraphOp& op, const std::function<void(swy_kernel&)>& change,
                       uint32_t rows, uint32_t flags) {
  const Registry registry = find_backends({"reference"});
  const auto selection = registry.select("reference");
  EXPECT_TRUE(selection.ok()) << selection.status().message();
  PlanDevice device = selection->devices[0]->plan();
  for (uint32_t i = 0; i < device.api->kernel_count(device.handle); ++i) {
    if (device.api->kernel_at(device.handle, i)->op == op.id) changed = *device.api->kernel_at(device.handle, i);
  }
  change(changed);
  swy_plugin table = *device.api;
  table.kernel_count = one_kernel;
  table.kernel_at = the_changed;
  device.api = &table;
  swy_bucket bucket{};
  bucket.struct_size = sizeof bucket;
  bucket.rows = rows;
  bucket.flags = flags;
  const std::vector<PlanDevice> devices = {device};
  const std::vector<VariantRule> rules;
  const Matcher matcher(devices, rules, bucket);
  std::vector<Considered> said;
  const bool taken = matcher.best(graph, op, 0, "composite", said).has_value();
  EXPECT_EQ(said.size(), 1u);
  EXPECT_EQ(taken, said[0].reason.empty());
  return said[0].reason;
}

// The same for ADD.
std::string refusal(const std::function<void(swy_kernel&)>& change, uint32_t rows, uint32_t flags = 0) {
  Graph graph;
  for (const char* name : {"x", "y", "sum"}) graph.values.push_back({name, SWY_F32, SWY_ROWS_STEP, 8});
  GraphOp add;
  add.id = SWY_OP_ADD;
  add.inputs = {0, 1};
  add.outputs = {2};
  return refusal_of(graph, add, change, rows, flags);
}

// The same for RMS_NORM_LINEAR with a matrix of this type, if the kernel takes only these encodings; and for its second
// revision, with a bias.
std::string refusal_of_weights(uint32_t encodings, swy_dtype dtype = SWY_I8, uint32_t revision = 1,
                               uint32_t of_kernel = 2) {
  Graph graph;
  for (const char* name : {"x", "y"}) graph.values.push_back({name, SWY_F32, SWY_ROWS_STEP, 8});
  for (const uint32_t rank : {1u, 2u}) {
    GraphTensor& w = graph.weights.emplace_back();
    w.desc = {sizeof(swy_tensor),
              rank == 1 ? swy_dtype{SWY_BF16} : dtype,
              dtype == SWY_MXFP4 && rank == 2 ? 32u : 0u,
              0,
              0,
              0,
              rank,
              0,
              {8, rank == 1 ? 1u : 8u, 1, 1},
              nullptr};
  }
  const swy_rms_norm_attrs attrs{sizeof attrs, 1e-6f, 0, 0};
  GraphOp op;
  op.id = SWY_OP_RMS_NORM_LINEAR;
  op.attrs.resize(sizeof attrs);
  std::memcpy(op.attrs.data(), &attrs, sizeof attrs);
  op.revision = revision;
  op.inputs = {0};
  op.weights = revision == 1 ? std::vector<uint32_t>{0, 1} : std::vector<uint32_t>{0, 1, 0};
  op.outputs = {1};
  return refusal_of(
      graph, op, [=](swy_kernel& k) { k.weight_dtypes = encodings, k.op_revision = of_kernel; }, 1, 0);
}

TEST(Match, HoldsKernelsToTheirRows) {
  const auto some = [](swy_kernel& k) { k.min_rows = 2, k.max_rows = 16; };
  EXPECT_EQ(refusal(some, 1), "takes 2 to 16 rows, the bucket has 1");
  EXPECT_EQ(refusal(some, 2), "");
  EXPECT_EQ(refusal(some, 16), "");
  EXPECT_EQ(refusal(some, 17), "takes 2 to 16 rows, the bucket has 17");
}

TEST(Match, DeterministicStepsNeedBothFlags) {
  for (const uint32_t missing : {SWY_KERNEL_DETERMINISTIC, SWY_KERNEL_BATCH_INVARIANT}) {
    const auto without = [&](swy_kernel& k) { k.flags &= ~missing; };
    EXPECT_EQ(refusal(without, 1), "");
    EXPECT_THAT(refusal(without, 1, SWY_BUCKET_DETERMINISTIC), HasSubstr("not batch-invariant"));
  }
}

TEST(Match, RefusesWhatCannotBeReplayedOrEstimated) {
  EXPECT_THAT(refusal([](swy_kernel& k) { k.flags &= ~uint32_t{SWY_KERNEL_CAPTURE_SAFE}; }, 1),
              HasSubstr("CAPTURE_SAFE"));
  EXPECT_THAT(refusal([](swy_kernel& k) { k.op_revision = 0; }, 1), HasSubstr("implements revision 0"));
  EXPECT_THAT(refusal([](swy_kernel& k) { k.cost = endless; }, 1), HasSubstr("cannot estimate its cost"));
}

// A norm's weight cannot be quantized, so the mask does not speak of it.
TEST(Match, TheMaskOfWeightsIsOfThoseThatMayBeQuantized) {
  EXPECT_EQ(refusal_of_weights(SWY_DTYPE_BIT(SWY_I8)), "");
  EXPECT_EQ(refusal_of_weights(SWY_DTYPE_BIT(SWY_I4) | SWY_DTYPE_BIT(SWY_BF16)), "no i8 weights");
  EXPECT_EQ(refusal_of_weights(SWY_DTYPE_BIT(SWY_I8), SWY_I8, 2), "") << "nor a bias";
}

// Kernels that were built before there were others never meet them.
TEST(Match, OnlyKernelsThatNameThemMeetLaterRevisionsAndTypes) {
  EXPECT_EQ(refusal_of_weights(0, SWY_I8, 2, 1), "implements revision 1, the program needs 2");
  EXPECT_EQ(refusal_of_weights(0, SWY_I8, 1, 1), "");
  EXPECT_EQ(refusal_of_weights(0, SWY_MXFP4), "no mxfp4 weights");
  EXPECT_EQ(refusal_of_weights(SWY_DTYPE_BIT(SWY_MXFP4), SWY_MXFP4), "");
  EXPECT_EQ(refusal_of_weights(0), "") << "0 is all types that the first headers had";
}

TEST(Match, BucketsHaveASmallestContext) {
  swy_bucket pool{};
  pool.seqs = 4;
  pool.context = 4096;
  EXPECT_EQ(bucket_of({.rows = 1, .context = 1}, pool, 64).context, kSmallestContextBucket);
  EXPECT_EQ(bucket_of({.rows = 1, .context = 300}, pool, 64).context, 512u);
  pool.context = 100;
  EXPECT_EQ(bucket_of({.rows = 1, .context = 1}, pool, 64).context, 100u);
}

}  // namespace
}  // namespace switchyard
