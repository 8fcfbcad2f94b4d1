// SPDX-License-Identifier: Apache-2.0
// The self-check accepts faithful compilations and finds the others out.
#include <gtest/gtest.h>

#include "switchyard/sampling_row.h"

extern "C" {
int self_check_plain(void);
int self_check_optimised(void);
int self_check_reordered(void);
int self_check_wide(void);
int self_check_contracted(void);
}

namespace switchyard {
namespace {

TEST(SelfCheck, FaithfulBuildsPass) {
  EXPECT_EQ(1, swy_sampling_self_check());
  EXPECT_EQ(1, self_check_plain());
  EXPECT_EQ(1, self_check_optimised());
}

TEST(SelfCheck, ReorderingIsFound) { EXPECT_EQ(0, self_check_reordered()); }

#if defined(SELF_CHECK_X86)
TEST(SelfCheck, ContractionIsFound) {
  if (!__builtin_cpu_supports("fma")) return;  // nothing contracts where there is no such instruction
  EXPECT_EQ(1, self_check_wide());
  EXPECT_EQ(0, self_check_contracted());
}
#endif

}  // namespace
}  // namespace switchyard
