// SPDX-License-Identifier: Apache-2.0
// Random settings of the chain, two hundred tokens each: the same with every kind of drafter as without.
#include "tests/engine/fixture.h"
#include "tests/support/drafted.h"

namespace switchyard {
namespace {

struct Matrix {
  const char* backend;
  int settings;
  uint32_t tokens;
  bool pending;
};

class DraftMatrix : public ::testing::TestWithParam<Matrix> {};

TEST_P(DraftMatrix, IsTheSameWithEveryDrafter) {
  const auto [backend, settings, tokens, pending] = GetParam();
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, backend, drafting(1, 15, pending));
  ASSERT_NE(t.model, nullptr);
  ASSERT_EQ(t.model->pending_rows() > 0, pending);
  std::mt19937 random(2026);
  uint64_t accepted = 0;
  for (int i = 0; i < settings && !HasFailure(); ++i) {
    const Request r = random_request(random, t.model->vocab(), tokens);
    accepted += expect_same_with_drafts(*t.model, r, fmt::format("setting {}", i));
  }
  std::printf("%s, %s: %d settings of %u tokens with 5 drafters each are the same; %llu drafts were accepted\n",
              backend, pending ? "rows pending" : "rows fed again", settings, tokens,
              static_cast<unsigned long long>(accepted));
}

// The reference backend takes a hundred times as long.
#ifdef SWITCHYARD_TEST_CPU
INSTANTIATE_TEST_SUITE_P(Backends, DraftMatrix,
                         ::testing::Values(Matrix{"cpu", 200, 200, true}, Matrix{"cpu", 30, 200, false},
                                           Matrix{"reference", 6, 60, true}, Matrix{"reference", 1, 60, false}));
#else
INSTANTIATE_TEST_SUITE_P(Backends, DraftMatrix,
                         ::testing::Values(Matrix{"reference", 6, 60, true}, Matrix{"reference", 1, 60, false}));
#endif

}  // namespace
}  // namespace switchyard
