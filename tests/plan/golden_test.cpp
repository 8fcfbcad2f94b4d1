// SPDX-License-Identifier: Apache-2.0
// The plan of the demo model on `reference` with two threads (workspaces grow with the team), kernel by kernel. A
// change here is a change of what runs: look at it, then record it anew with
//   SWITCHYARD_RECORD=1 build/release/bin/plan_test --gtest_filter='*Golden*'
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/plan/support.h"

namespace switchyard {
namespace {

std::string describe_plan(const Plan& plan) {
  size_t lists = 0;
  for (const PlanSegment& s : plan.segments) lists += s.copy ? 0 : 1;
  std::map<std::string, size_t> kernels;
  for (const PlanNode& n : plan.nodes) kernels[n.kernel == nullptr ? "copy" : n.kernel->name] += 1;
  std::string text =
      fmt::format("rows {}, context {}\nkernels {}, lists {}, casts {}, copies {}, arena {} bytes\n", plan.bucket.rows,
                  plan.bucket.context, plan.nodes.size(), lists, plan.casts(), plan.copies(), plan.arena_bytes[0]);
  for (const auto& [kernel, times] : kernels) text += fmt::format("{} x {}\n", times, kernel);
  for (const PlanDecision& d : plan.decisions) {
    text += fmt::format("{} {}: {} ({})\n", d.op, d.op_kind, d.chosen, d.reason);
  }
  return text;
}

class Golden : public ::testing::TestWithParam<uint32_t> {};

TEST_P(Golden, PlanOfTheDemoModel) {
  const TestModel t = demo({"reference"});
  ASSERT_NE(t.model, nullptr);
  const std::string now = describe_plan(plan_of(t, GetParam()));
  const std::string path = fmt::format("{}/plan/demo-{}-rows.txt", SWITCHYARD_TEST_DATA, GetParam());
  const char* record = std::getenv("SWITCHYARD_RECORD");
  if (record != nullptr && std::string(record) == "1") std::ofstream(path) << now;
  std::ostringstream recorded;
  recorded << std::ifstream(path).rdbuf();
  EXPECT_EQ(now, recorded.str());
}

INSTANTIATE_TEST_SUITE_P(Rows, Golden, ::testing::Values(1u, 512u));

}  // namespace
}  // namespace switchyard
