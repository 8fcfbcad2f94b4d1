// SPDX-License-Identifier: Apache-2.0
// A step allocates nothing, neither in core nor in a backend: every call of malloc and its kin is counted.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <numeric>

#include "tests/engine/fixture.h"
#include "tests/support/allocations.h"

namespace switchyard {
namespace {

// Calls while `step` runs the second time and the third: the first records.
template <class Step>
uint64_t allocations_of(Step step) {
  step();
  const uint64_t before = allocations_so_far();
  step();
  step();
  return allocations_so_far() - before;
}

TEST(Allocations, AreCounted) {
  EXPECT_GE(allocations_of([] { std::make_unique<std::vector<int>>(100).reset(); }), 2u);
}

class Steps : public ::testing::TestWithParam<const char*> {};

TEST_P(Steps, AllocateNothing) {
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, GetParam(), with_context(128));
  ASSERT_NE(t.model, nullptr);
  auto session = t.model->session();
  ASSERT_TRUE(session.ok());
  std::vector<int32_t> ids(40);
  std::iota(ids.begin(), ids.end(), 50);
  const auto prompt = [&] {
    (*session)->reset();
    if (!(*session)->feed(ids).ok()) std::abort();
  };
  EXPECT_EQ(allocations_of(prompt), 0u) << "a prompt";
  EXPECT_EQ(allocations_of([&] {
              if (!(*session)->feed(std::span(ids).first(1)).ok()) std::abort();
            }),
            0u)
      << "a token";
}

#ifdef SWITCHYARD_TEST_CPU
INSTANTIATE_TEST_SUITE_P(Backends, Steps, ::testing::Values("reference", "cpu"));
#else
INSTANTIATE_TEST_SUITE_P(Backends, Steps, ::testing::Values("reference"));
#endif

}  // namespace
}  // namespace switchyard
