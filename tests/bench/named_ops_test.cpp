// SPDX-License-Identifier: Apache-2.0
// Kernels for operations with a name, compared with the functions of the program that do the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/ops.h"
#include "core/plugin/registry.h"
#include "tests/engine/fixture.h"

namespace switchyard::bench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What the backend acme has, with its option `wrong`. Registries stay until the process ends.
Result<OpTimes> measure(const char* wrong, std::vector<uint32_t> rows, const std::string& op = "") {
  static std::vector<std::unique_ptr<Registry>> all;
  DiscoveryOptions discovery;
  discovery.libraries = {SWITCHYARD_PLAN_FIXTURES "/switchyard_acme.so",
                         SWITCHYARD_TEST_BACKENDS "/switchyard_reference.so"};
  discovery.settings = {{"acme", {{"wrong", wrong}}}};
  all.push_back(std::make_unique<Registry>(Registry::discover(Os::real(), discovery, test_host())));
  SWY_LET(auto selection, all.back()->select("acme,reference"));
  SWY_LET(auto oracle, all.back()->select("reference"));
  SWY_LET(auto program, Program::load(Os::real(), SWITCHYARD_NAMED_PROGRAM));
  OpRequest request;
  request.rows = std::move(rows);
  request.op = op;
  request.depth = 8;
  request.seconds = 0.001;
  request.oracle = oracle.devices[0];
  return measure_ops(std::make_shared<const Program>(std::move(program)), selection.devices, selection.policy, request,
                     [](size_t, size_t) { return true; });
}

// The error of the only kernel for an operation.
double error_of(const char* wrong, uint32_t rows, const std::string& op) {
  const auto ops = measure(wrong, {rows}, op);
  EXPECT_TRUE(ops.ok()) << ops.status().message();
  if (!ops.ok() || ops->times.size() != 1 || !ops->times[0].errors) {
    ADD_FAILURE() << "nothing was compared for " << op;
    return -1;
  }
  EXPECT_EQ(ops->times[0].op, op);
  return ops->times[0].errors->worst;
}

TEST(NamedOps, RightKernelsAgreeWithTheirFunctions) {
  for (const uint32_t rows : {1u, 5u}) {
    EXPECT_LT(error_of("0", rows, "acme.gelu/1"), 1e-6) << rows;
    EXPECT_LT(error_of("0", rows, "acme.conv/1"), 1e-6) << rows;
  }
}

TEST(NamedOps, WrongResultsAreSeen) {
  EXPECT_GT(error_of("1", 1, "acme.gelu/1"), 0.01);
  EXPECT_GT(error_of("1", 5, "acme.gelu/1"), 0.01);
}

TEST(NamedOps, AStateThatIsNotReadIsSeen) { EXPECT_GT(error_of("2", 1, "acme.conv/1"), 0.1); }

// A prompt from position 0 reads no state, so that only what it leaves behind is wrong.
TEST(NamedOps, AStateThatIsNotWrittenIsSeen) { EXPECT_GT(error_of("2", 5, "acme.conv/1"), 0.1); }

TEST(NamedOps, AllOperationsOfTheProgramAreMeasured) {
  const auto ops = measure("0", {4});
  ASSERT_TRUE(ops.ok()) << ops.status().message();
  size_t named = 0;
  for (const OpTime& t : ops->times) {
    ASSERT_TRUE(t.errors) << t.op << " " << t.kernel;
    EXPECT_LT(t.errors->worst, 1e-5) << t.op << " " << t.kernel;
    named += t.op.starts_with("acme.") ? 1 : 0;
  }
  EXPECT_EQ(named, 2u) << "gelu and conv; gated has no kernel";
}

TEST(NamedOps, WhatDoesNotExistIsNamed) {
  EXPECT_THAT(measure("0", {1}, "acme.tanh/1").status().message(),
              AllOf(HasSubstr("unknown operation 'acme.tanh/1'"), HasSubstr("acme.conv/1, acme.gated/1, acme.gelu/1")));
  EXPECT_THAT(measure("0", {1}, "acme.gated/1").status().message(),
              AllOf(HasSubstr("no chosen backend has a kernel for acme.gated/1"), HasSubstr("acme.gelu/1")));
}

}  // namespace
}  // namespace switchyard::bench
