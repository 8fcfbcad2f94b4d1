// SPDX-License-Identifier: Apache-2.0
#include "core/engine/diverge.h"

#include "tests/engine/fixture.h"

namespace switchyard {
namespace {

const std::vector<int32_t> kPrompt = {50, 60, 70};

TEST(Diverge, GreedyStepsAreTheLargestLogitsInOrder) {
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, "reference", with_context(64));
  const auto steps = continue_greedily(*t.model, kPrompt, 5);
  ASSERT_TRUE(steps.ok()) << steps.status().message();
  ASSERT_EQ(steps->size(), 5u);
  const auto session = t.model->session();
  auto logits = (*session)->feed(kPrompt);
  for (const GreedyStep& s : *steps) {
    EXPECT_EQ(s.id(), std::max_element(logits->begin(), logits->end()) - logits->begin());
    EXPECT_GE(s.margin(), 0);
    for (size_t i = 1; i < s.top.size(); ++i) EXPECT_GE(s.top[i - 1].logit, s.top[i].logit);
    const int32_t id = s.id();
    logits = (*session)->feed({&id, 1});
  }
}

TEST(Diverge, AModelFollowsItself) {
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, "reference", with_context(64));
  const auto steps = continue_greedily(*t.model, kPrompt, 20);
  const auto d = first_divergence(*t.model, kPrompt, *steps);
  ASSERT_TRUE(d.ok()) << d.status().message();
  EXPECT_FALSE(*d);
}

TEST(Diverge, TheFirstOtherChoiceIsFoundWithItsGaps) {
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, "reference", with_context(64));
  auto steps = continue_greedily(*t.model, kPrompt, 10);
  GreedyStep& fifth = (*steps)[5];
  const float margin = fifth.margin();
  std::swap(fifth.top[0].id, fifth.top[1].id);  // as if a near tie had gone the other way
  auto d = first_divergence(*t.model, kPrompt, *steps);
  ASSERT_TRUE(d.ok() && *d);
  EXPECT_EQ((*d)->position, 5u);
  EXPECT_EQ((*d)->id, fifth.top[0].id);
  EXPECT_EQ((*d)->other_id, fifth.top[1].id);
  EXPECT_EQ((*d)->gap, margin);
  EXPECT_FLOAT_EQ((*d)->other_gap, margin);
  for (auto& c : fifth.top) c.id = fifth.top[0].id;
  d = first_divergence(*t.model, kPrompt, *steps);
  ASSERT_TRUE(d.ok() && *d);
  EXPECT_FALSE((*d)->gap) << "the other's choice is not among the candidates";
}

TEST(Diverge, AFullContextIsAnError) {
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, "reference", with_context(8));
  EXPECT_EQ(continue_greedily(*t.model, kPrompt, 20).status().code(), Code::usage);
}

}  // namespace
}  // namespace switchyard
