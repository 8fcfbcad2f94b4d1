// SPDX-License-Identifier: Apache-2.0
// Every kernel of `reference` is reached by some plan of this folder's tests, so that none is untested by being unused.
#include <set>

#include "tests/plan/support.h"

namespace switchyard {
namespace {

TEST(Coverage, EveryKernelOfReferenceIsPlannedSomewhere) {
  const std::vector<Use> uses = {
      {"reference"},
      {"reference",
       {"attention=!attention.plain", "gated_delta=!gated_delta.recurrent", "moe=!moe.grouped",
        "lm_head=!lm_head.plain", "moe_add=!moe_add.grouped", "linear_add=!linear_add.plain",
        "rms_norm_linear=!rms_norm_linear.plain", "add_rms_norm=!add_rms_norm.plain"}},
      {"reference", {"add_rms_norm=add_rms_norm.plain"}},
      {"reference", {"moe_add=!moe_add.grouped"}},
      {"narrow,reference"}};
  std::set<std::string> planned, all;
  for (const Use& use : uses) {
    const TestModel t = demo(use);
    ASSERT_NE(t.model, nullptr);
    for (const PlanNode& n : plan_of(t, 64).nodes) {
      if (n.kernel != nullptr) planned.insert(n.kernel->name);
    }
  }
  const Registry registry = find_backends({"reference"});
  const auto selection = registry.select("reference");
  ASSERT_TRUE(selection.ok()) << selection.status().message();
  const PlanDevice device = selection->devices[0]->plan();
  for (uint32_t i = 0; i < device.api->kernel_count(device.handle); ++i) {
    all.insert(device.api->kernel_at(device.handle, i)->name);
  }
  // Those of the sampler: sampler_test.cpp plans them, and this program has none.
  for (const char* name : {"sample.plain", "top_candidates.plain", "lm_head_sample.plain"})
    EXPECT_EQ(all.erase(name), 1u);
  for (const char* name : {"mlp.plain", "mlp_add.plain"}) EXPECT_EQ(all.erase(name), 1u);  // revisions_test.cpp
  for (const std::string& name : all) EXPECT_EQ(planned.count(name), 1u) << name;
}

}  // namespace
}  // namespace switchyard
