// SPDX-License-Identifier: Apache-2.0
// Ten thousand requests through services of different sizes, in parts that can be run alone.
#include <iostream>

#include "tests/serve/interleavings.h"

namespace switchyard {
namespace {

class TenThousand : public ::testing::TestWithParam<uint32_t> {};

TEST_P(TenThousand, DrawTheSame) {
  constexpr uint32_t kSeeds = 5;
  uint64_t hits = 0, set_asides = 0, cancelled = 0;
  for (uint32_t seed = 100 + GetParam() * kSeeds; seed < 100 + (GetParam() + 1) * kSeeds; ++seed) {
    const Interleavings::Totals t = Interleavings(seed).run(500);
    hits += t.hits;
    set_asides += t.set_asides;
    cancelled += t.cancelled;
    if (HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(hits, 125u);
  EXPECT_GT(cancelled, 25u);
  EXPECT_GT(set_asides, 0u);
  std::cout << hits << " hits, " << cancelled << " cancelled, " << set_asides << " set aside\n";
}

INSTANTIATE_TEST_SUITE_P(Parts, TenThousand, ::testing::Range(0u, 4u));

}  // namespace
}  // namespace switchyard
