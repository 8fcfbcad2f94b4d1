// SPDX-License-Identifier: Apache-2.0
// Ten thousand requests through services of different sizes.
#include "tests/serve/interleavings.h"

namespace switchyard {
namespace {

TEST(Interleavings, TenThousandDrawTheSame) {
  uint64_t hits = 0, set_asides = 0, cancelled = 0;
  for (uint32_t seed = 100; seed < 120; ++seed) {
    const Interleavings::Totals t = Interleavings(seed).run(500);
    hits += t.hits;
    set_asides += t.set_asides;
    cancelled += t.cancelled;
    if (HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(hits, 500u);
  EXPECT_GT(cancelled, 100u);
  EXPECT_GT(set_asides, 0u);
  RecordProperty("hits", std::to_string(hits));
  RecordProperty("set_asides", std::to_string(set_asides));
  RecordProperty("cancelled", std::to_string(cancelled));
}

}  // namespace
}  // namespace switchyard
