// SPDX-License-Identifier: Apache-2.0
// The loop that steps a batch allocates nothing, whatever its requests need.
#include "tests/engine/fixture.h"
#include "tests/support/allocations.h"
#include "tests/support/batches.h"

namespace switchyard {
namespace {

class StepLoop : public ::testing::TestWithParam<const char*> {};

TEST_P(StepLoop, AllocatesNothing) {
  constexpr uint32_t kSessions = 6;
  ModelOptions options = options_for(kSessions);
  options.context = 256;
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, GetParam(), options, SWITCHYARD_FIXTURES);
  ASSERT_NE(t.model, nullptr);
  const bool samples = t.model->device_sampling().token;
  // All on the device, so that an asynchronous one runs ahead; or on each path, with masks.
  for (const bool mixed : {false, true}) {
    std::mt19937 random(4);
    std::vector<std::unique_ptr<Session>> sessions;
    Batch batch(*t.model);
    uint64_t drawn = 0;
    for (uint32_t i = 0; i < kSessions; ++i) {
      sessions.push_back(*t.model->session());
      Request r = request_of(random_ids(random, 5 + i, t.model->vocab()), random_params(random, t.model->vocab()), 200);
      r.on_token = [&drawn](const TokenEvent&) { return ++drawn > 0; };
      if (samples) r.path = mixed ? static_cast<SamplingPath>(i % 3) : SamplingPath::fused;
      if (mixed && i < 3) {
        r.mask = [](std::span<const int32_t>, std::span<uint32_t> mask) {
          std::fill(mask.begin(), mask.end(), 0x10101010u);
        };
      }
      ASSERT_TRUE(batch.add(*sessions.back(), std::move(r)).ok());
    }
    const auto steps = [&](int n) {
      for (int i = 0; i < n; ++i) {
        const auto stepped = batch.step();
        ASSERT_TRUE(stepped.ok() && *stepped);
      }
    };
    ASSERT_NO_FATAL_FAILURE(steps(10));
    const uint64_t before = allocations_so_far(), drawn_before = drawn;
    ASSERT_NO_FATAL_FAILURE(steps(40));
    EXPECT_EQ(allocations_so_far() - before, 0u) << (mixed ? "on all paths" : "on one path");
    EXPECT_EQ(drawn - drawn_before, 40u * kSessions);
  }
}

TEST(Allocation, IsCounted) {
  const uint64_t before = allocations_so_far();
  auto* volatile kept = new int[100];
  delete[] kept;
  EXPECT_EQ(allocations_so_far() - before, 1u);
}

#ifdef SWITCHYARD_TEST_CPU
INSTANTIATE_TEST_SUITE_P(Backends, StepLoop, ::testing::Values("reference", "cpu", "late"));
#else
INSTANTIATE_TEST_SUITE_P(Backends, StepLoop, ::testing::Values("reference", "late"));
#endif

}  // namespace
}  // namespace switchyard
