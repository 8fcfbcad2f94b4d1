// SPDX-License-Identifier: Apache-2.0
#include "bench/op_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/fixture.h"

namespace switchyard::bench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Everything stays until the process ends.
struct Setting {
  std::shared_ptr<const Program> program;
  std::unique_ptr<Registry> registry;
};

Setting& setting() {
  static Setting s = [] {
    DiscoveryOptions discovery;
    discovery.cpu_features = default_discovery().cpu_features;
    discovery.search_path = SWITCHYARD_TEST_BACKENDS;
    auto program = Program::load(Os::real(), SWITCHYARD_DEMO_MODEL);
    EXPECT_TRUE(program.ok());
    return Setting{std::make_shared<const Program>(std::move(*program)),
                   std::make_unique<Registry>(Registry::discover(Os::real(), discovery, test_host()))};
  }();
  return s;
}

OpRequest request_of(std::vector<uint32_t> rows, const std::string& op = "") {
  OpRequest r;
  r.rows = std::move(rows);
  r.op = op;
  r.depth = 8;
  return r;
}

Result<OpTimes> measure(const std::string& backend, OpRequest request) {
  SWY_LET(auto selection, setting().registry->select(backend));
  SWY_LET(auto oracle, setting().registry->select("reference"));
  request.oracle = oracle.devices[0];
  request.seconds = 0.001;
  return measure_ops(setting().program, selection.devices, selection.policy, request,
                     [](size_t, size_t) { return true; });
}

TEST(Ops, EveryShapeOfTheModelIsMeasured) {
  const auto ops = measure("reference", request_of({1}));
  ASSERT_TRUE(ops.ok()) << ops.status().message();
  size_t in_a_step = 0;
  for (const OpTime& t : ops->times) {
    if (t.chosen) in_a_step += t.count;
    EXPECT_GE(t.samples.seconds.size(), 1u) << t.kernel;
    EXPECT_GT(t.samples.median(), 0) << t.kernel;
    ASSERT_TRUE(t.errors) << t.kernel;
    EXPECT_EQ(t.errors->worst, 0) << t.kernel << ": reference is its own oracle";
  }
  EXPECT_EQ(in_a_step, 8u * 5 + 3) << "norm and projections, mixing, output and sum, norm, experts; and three around";
}

TEST(Ops, OneOperationInAllItsShapes) {
  const auto ops = measure("reference", request_of({1, 4}, "linear"));
  ASSERT_TRUE(ops.ok()) << ops.status().message();
  ASSERT_EQ(ops->times.size(), 6u) << "projections of two kinds of layer and their outputs, at two row counts";
  EXPECT_THAT(ops->times[0].shape, AllOf(HasSubstr("256 -> 512+256+8+8"), HasSubstr("i4")));
  EXPECT_EQ(ops->times[0].count, 6u);
  EXPECT_FALSE(ops->times[0].chosen) << "the plan runs it fused with the norm before";
  EXPECT_EQ(ops->times[5].rows, 4u);
}

TEST(Ops, DecodingRowsAreOfAsManySequences) {
  OpRequest request = request_of({1, 4}, "gated_delta");
  const auto prompt = measure("reference", request);
  request.decode = true;
  const auto decode = measure("reference", request);
  ASSERT_TRUE(prompt.ok()) << prompt.status().message();
  ASSERT_TRUE(decode.ok()) << decode.status().message();
  ASSERT_EQ(prompt->times.size(), 2u);
  ASSERT_EQ(decode->times.size(), 2u);
  EXPECT_EQ(prompt->times[1].work.state_bytes, prompt->times[0].work.state_bytes) << "one state, several rows";
  EXPECT_EQ(decode->times[1].work.state_bytes, 4 * decode->times[0].work.state_bytes);
  const auto judged = measure("cpu", request);
  ASSERT_TRUE(judged.ok()) << judged.status().message();
  for (const OpTime& t : judged->times) {
    ASSERT_TRUE(t.errors) << t.kernel;
    EXPECT_GT(t.errors->worst, 0) << t.kernel << ", " << t.rows << " rows: nothing was compared";
    EXPECT_LT(t.errors->worst, 1e-4) << t.kernel << ", " << t.rows << " rows";
  }
  request.op = "attention";  // a block table of each sequence
  EXPECT_TRUE(measure("reference", request).ok());
}

TEST(Ops, WhatDoesNotExistIsNamed) {
  EXPECT_THAT(measure("reference", request_of({1}, "warp")).status().message(),
              AllOf(HasSubstr("unknown operation 'warp'"), HasSubstr("gated_delta")));
  EXPECT_THAT(measure("reference", request_of({1}, "cast")).status().message(),
              AllOf(HasSubstr("no step of this model runs cast"), HasSubstr("rms_norm_linear")));
  EXPECT_THAT(measure("reference", request_of({65}, "lm_head")).status().message(),
              HasSubstr("--rows is too large for lm_head: at most 64 rows have logits"));
}

TEST(Ops, ForbiddenKernelsAreReported) {
  auto rule = parse_variant_rule("linear=!linear.plain");
  ASSERT_TRUE(rule.ok());
  OpRequest request = request_of({1}, "linear");
  request.variants = {*rule};
  const auto ops = measure("reference", request);
  EXPECT_FALSE(ops.ok());
}

#ifdef SWITCHYARD_TEST_CPU
TEST(Ops, VariantsDifferInErrorAsTheySay) {
  const auto ops = measure("cpu", request_of({1, 16}, "linear"));
  ASSERT_TRUE(ops.ok()) << ops.status().message();
  bool exact = false, rounded = false;
  for (const OpTime& t : ops->times) {
    ASSERT_TRUE(t.errors) << t.kernel;
    if (t.kernel == "linear.exact") {
      exact = true;
      EXPECT_LT(t.errors->rms, 1e-5);
    } else {
      rounded = true;
      EXPECT_LT(t.errors->rms, 0.02) << t.kernel;
      EXPECT_GT(t.errors->rms, 1e-4) << t.kernel << " rounds its activations";
    }
  }
  EXPECT_TRUE(exact && rounded);
}
#endif

TEST(Ops, ErrorsAreOfRows) {
  const std::vector<float> want = {3, 4, 0, 0, 1, 0, 0, 0}, got = {3, 4, 0, 0, 1, 0, 0, 0.5f};
  const RowErrors e = row_errors(got, want, 4);
  EXPECT_DOUBLE_EQ(e.worst, 0.5);
  EXPECT_DOUBLE_EQ(e.mean, 0.25);
  EXPECT_DOUBLE_EQ(e.rms, std::sqrt(0.25 / 26));
  std::vector<float> wide(6400, 1), off = wide;
  off[9] = 2;  // one element counts as much as 64
  EXPECT_DOUBLE_EQ(row_errors(off, wide, 6400).worst, 0.125);
  off[9] = NAN;
  EXPECT_EQ(row_errors(off, wide, 6400).worst, INFINITY);
}

TEST(Ops, ErrorsOfThePlansKernels) {
  for (const char* backend : {"reference",
#ifdef SWITCHYARD_TEST_CPU
                              "cpu"
#endif
       }) {
    auto selection = setting().registry->select(backend);
    auto oracle = setting().registry->select("reference");
    ASSERT_TRUE(selection.ok() && oracle.ok());
    OpErrorRequest request;
    request.rows = {1, 17};
    const auto errors =
        op_errors(setting().program, selection->devices, selection->policy, oracle->devices[0], request);
    ASSERT_TRUE(errors.ok()) << errors.status().message();
    EXPECT_GE(errors->size(), 8u);
    for (const OpError& e : *errors) {
      EXPECT_GE(e.worst_row, e.mean) << e.kernel;
      EXPECT_LT(e.worst_row, 0.1) << e.op << " " << e.kernel;
      EXPECT_TRUE(e.worst_row == 0 || std::string(backend) != "reference") << e.kernel;
    }
  }
}

TEST(Ops, StopsWhenToldTo) {
  auto selection = setting().registry->select("reference");
  ASSERT_TRUE(selection.ok());
  OpRequest request = request_of({1});
  request.seconds = 0.001;
  for (const size_t cases : {size_t{0}, size_t{2}}) {
    const auto ops = measure_ops(setting().program, selection->devices, selection->policy, request,
                                 [&](size_t done, size_t) { return done < cases; });
    ASSERT_TRUE(ops.ok()) << ops.status().message();
    EXPECT_TRUE(ops->interrupted);
    EXPECT_EQ(ops->times.size(), cases) << "what was measured is kept";
  }
}

}  // namespace
}  // namespace switchyard::bench
