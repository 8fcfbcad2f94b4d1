// SPDX-License-Identifier: Apache-2.0
#include "core/engine/memory_need.h"

#include <gmock/gmock.h>

namespace switchyard {
namespace {

using testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;

// One session of 4,096 tokens: 17 GiB of weights, an eighth of a GiB of states.
MemoryNeed small() {
  MemoryNeed n{.device = "cuda:0", .free = 24 * kGiB, .weights = 17 * kGiB, .weights_i8 = 33 * kGiB};
  n.weights_i4 = 17 * kGiB;
  n.slots = kGiB / 16;
  n.page = kGiB / 1024;
  n.page_tokens = 64;
  n.pages = 64;
  n.context = 4096;
  return n;
}

TEST(MemoryNeed, WhatFitsPasses) {
  MemoryNeed n = small();
  EXPECT_TRUE(check_memory(n).ok());
  n.free = n.weights + n.states();
  EXPECT_TRUE(check_memory(n).ok());
  n.free -= 1;
  EXPECT_EQ(check_memory(n).code(), Code::out_of_device_memory);
  n.free = 0;  // the device does not say
  EXPECT_TRUE(check_memory(n).ok());
}

TEST(MemoryNeed, NamesTheEncodingThatFits) {
  MemoryNeed n = small();
  n.weights = 64 * kGiB;
  EXPECT_EQ(check_memory(n).message(),
            "the weights take 64.0 GiB on cuda:0, and 24.0 GiB are free; as i4 in groups of 64 they "
            "would take about 17.0 GiB");
  n.free = 40 * kGiB;
  EXPECT_THAT(check_memory(n).message(), HasSubstr("as i8 in groups of 64 they would take about 33.0 GiB"));
  n.free = 33 * kGiB;  // not the states as well
  EXPECT_THAT(check_memory(n).message(), HasSubstr("as i4 in groups of 64"));
  n.free = 8 * kGiB;
  EXPECT_THAT(check_memory(n).message(),
              HasSubstr("even as i4 they and the states would take about 17.1 GiB: use another"));
}

// The advised size fits; one page more for each session leaves too little for the steps.
TEST(MemoryNeed, NamesTheContextAndTheSessionsThatFit) {
  MemoryNeed n = small();
  n.sessions = 4;
  n.slots *= n.sessions;
  n.context = 262144;
  n.pages = n.sessions * n.context / n.page_tokens;
  EXPECT_EQ(check_memory(n).message(),
            "the states of 4 sessions of 262144 tokens take 16.2 GiB on cuda:0, and 7.0 GiB are free beside the "
            "weights; --ctx 107008 or 1 session would fit");
  n.context = 107008;
  n.pages = n.sessions * n.context / n.page_tokens;
  EXPECT_TRUE(check_memory(n).ok());
  n.pages += n.sessions;
  EXPECT_GT(n.weights + n.states(), n.free - (n.free - n.weights) / 32);
}

TEST(MemoryNeed, NamesTheBudgetThatFits) {
  MemoryNeed n = small();
  n.budgeted = true;
  n.pages = 8192;
  EXPECT_EQ(check_memory(n).message(),
            "the states' budget takes 8.1 GiB on cuda:0, and 7.0 GiB are free beside the weights; 6.8 GiB would fit");
}

TEST(MemoryNeed, CountsTheLargestStep) {
  MemoryNeed n = small();
  n.steps = n.free - n.weights - n.states();
  n.step_rows = 64;
  EXPECT_TRUE(check_memory(n).ok());
  n.steps += kGiB;
  EXPECT_EQ(check_memory(n).code(), Code::out_of_device_memory);
  EXPECT_EQ(check_memory(n).message(),
            "a step of 64 rows takes 7.9 GiB on cuda:0, and 6.9 GiB are free beside weights and states; free some "
            "memory, or use a smaller --ctx or --chunk");
}

TEST(MemoryNeed, OfTheHostNamesAPackedFile) {
  MemoryNeed n = small();
  n.host = true;
  n.device = "cpu:0";
  n.free = 8 * kGiB;
  EXPECT_EQ(check_memory(n).message(),
            "the weights take 17.0 GiB on cpu:0, and 8.0 GiB are free; a file that switchyard convert --pack makes is "
            "mapped, and not copied");
}

// Sizes of a file that no memory has do not come out small.
TEST(MemoryNeed, DoesNotOverflow) {
  MemoryNeed n = small();
  n.page = uint64_t{1} << 60;
  n.pages = 1u << 30;
  EXPECT_EQ(check_memory(n).code(), Code::out_of_device_memory);
  n = small();
  n.steps = UINT64_MAX;
  EXPECT_EQ(check_memory(n).code(), Code::out_of_device_memory);
}

TEST(MemoryNeed, SaysWhenNothingFits) {
  MemoryNeed n = small();
  n.free = n.weights + 1;
  EXPECT_THAT(check_memory(n).message(), HasSubstr("0.0 GiB are free beside the weights; use another device"));
}

}  // namespace
}  // namespace switchyard
