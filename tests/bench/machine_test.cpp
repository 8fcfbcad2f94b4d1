// SPDX-License-Identifier: Apache-2.0
#include "bench/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace switchyard::bench {
namespace {

TEST(Machine, IsDescribed) {
  const Machine m = describe_machine();
  EXPECT_TRUE(m.kernel.starts_with("Linux ")) << m.kernel;
  EXPECT_GE(m.cpus, 1u);
  EXPECT_GE(m.last_cache_bytes, m.second_cache_bytes);
  EXPECT_GT(m.memory_bytes, uint64_t{1} << 20);
  EXPECT_LE(m.memory_free_bytes, m.memory_bytes);
}

TEST(Machine, KnowsHowItWasCalled) {
  const auto words = command_line();
  ASSERT_FALSE(words.empty());
  EXPECT_THAT(words[0], ::testing::HasSubstr("bench_test"));
}

TEST(Machine, PeakMemoryGrows) {
  const uint64_t before = peak_memory_bytes();
  std::vector<char> touched(before + (64 << 20), 1);
  EXPECT_GT(peak_memory_bytes(), before + (32 << 20)) << touched.size();
}

}  // namespace
}  // namespace switchyard::bench
