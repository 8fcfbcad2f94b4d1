// SPDX-License-Identifier: Apache-2.0
// Rows that may not stand are left out only where no state is changed by what a mixture of experts has made of them.
#include <gmock/gmock.h>

#include "core/plan/graph.h"
#include "tests/engine/fixture.h"
#include "tests/engine/fixtures/late.h"
#include "tests/support/batches.h"

namespace switchyard {
namespace {

// Operations one after the other, each of which reads what the one before it makes.
Graph chain(const std::vector<std::pair<uint32_t, bool>>& ops) {
  Graph g;
  g.values.push_back({"x", SWY_F32, SWY_ROWS_STEP, 8});
  for (const auto& [id, state] : ops) {
    const auto at = static_cast<uint32_t>(g.ops.size());
    g.values.push_back({"y", SWY_F32, SWY_ROWS_STEP, 8});
    GraphOp& op = g.ops.emplace_back();
    op.id = id;
    op.inputs = {at}, op.outputs = {at + 1};
    if (state) op.states = {0};
  }
  return g;
}

TEST(StandingRows, AStateThatReadsAMixtureIsFound) {
  constexpr std::pair<uint32_t, bool> kAttention{SWY_OP_ATTENTION, true}, kMoe{SWY_OP_MOE, false},
      kNorm{SWY_OP_RMS_NORM, false}, kDelta{SWY_OP_GATED_DELTA, true};
  EXPECT_FALSE(state_after_mixture(chain({kAttention, kNorm, kMoe, kNorm})));
  EXPECT_FALSE(state_after_mixture(chain({kAttention, kDelta, kMoe})));
  const auto found = state_after_mixture(chain({kAttention, kMoe, kNorm, kDelta}));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->mixture, 1u);
  EXPECT_EQ(found->state, 3u);
  EXPECT_TRUE(state_after_mixture(chain({{SWY_OP_MOE_ADD, false}, kAttention})));
  EXPECT_TRUE(state_after_mixture(chain({{SWY_OP_EXPERTS, false}, kAttention})));
  Graph named = chain({{SWY_OP_NAMED, false}, kAttention});
  named.ops[0].named = "acme.mix/1";
  EXPECT_TRUE(state_after_mixture(named)) << "what it does inside is not known";
  Graph beside = chain({kAttention, kMoe, kDelta});
  beside.ops[2].inputs = {0};
  EXPECT_FALSE(state_after_mixture(beside)) << "the state reads something else";
}

// The main function of the demo has a mixture in each layer, and attention after it.
TEST(StandingRows, StepsOfSuchAProgramKeepAllRows) {
  const TestModel t = make_model(kDemo, "late", options_for(1), SWITCHYARD_FIXTURES);
  ASSERT_NE(t.model, nullptr);
  const PlanDevice& device = t.model->devices()[0];
  const auto& report = *static_cast<const LateReport*>(device.api->get_extension(device.handle, kLateReport));
  const std::vector<int32_t> tokens = {5, 6}, drafts = {6};
  const std::vector<uint32_t> pages = {0};
  StepSequence s{.tokens = tokens, .pages = pages, .logit_rows = 1};
  s.drafts = drafts;
  const Status submitted = t.model->runner().submit({&s, 1}, kWantTokens);
  EXPECT_EQ(submitted.code(), Code::unsupported);
  EXPECT_THAT(submitted.message(), ::testing::HasSubstr("changes a state by what "));
  const uint64_t spoiled = report.spoiled;
  const Status begun = t.model->runner().submit_body(s);
  ASSERT_TRUE(begun.ok()) << begun.message();
  t.model->runner().drain();
  EXPECT_EQ(report.spoiled, spoiled);
}

}  // namespace
}  // namespace switchyard
