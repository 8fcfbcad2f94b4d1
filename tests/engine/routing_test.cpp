// SPDX-License-Identifier: Apache-2.0
#include "core/engine/routing.h"

#include <gmock/gmock.h>

#include <numeric>

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
