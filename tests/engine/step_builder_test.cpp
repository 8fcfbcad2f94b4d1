// SPDX-License-Identifier: Apache-2.0
// The block that describes a step to devices: the sequence of each row, which rows want logits, and the contexts'
// lengths.
#include "core/engine/step_builder.h"

#include <gtest/gtest.h>

#include <numeric>

namespace switchyard {
namespace {

template <class T>
std::vector<T> array(const swy_step& step, uint32_t at, uint32_t count) {
  const auto* p = reinterpret_cast<const T*>(reinterpret_cast<const char*>(&step) + at);
  return {p, p + count};
}

TEST(StepBuilder, SaysWhoseEveryRowIs) {
  StepBuilder builder({.rows = 16, .seqs = 3, .pages_per_seq = 6, .page_size = 64, .vocab = 0});
  const std::vector<int32_t> tokens = {5, 6, 7, 8};
  const std::vector<uint32_t> pages = {3, 1, 2, 9, 8};
  const std::vector<StepSequence> sequences = {
      {std::span(tokens).first(3), 10, 0, 1, std::span(pages).first(1), 2},
      {std::span(tokens).last(1), 256, 2, 2, pages, 1},
      {std::span(tokens).first(2), 0, 4, 5, std::span(pages).first(1), 0},
  };
  const auto block = builder.build(sequences, 7);
  ASSERT_TRUE(block.ok()) << block.status().message();
  const auto& step = *reinterpret_cast<const swy_step*>(block->data());
  EXPECT_EQ(step.number, 7u);
  EXPECT_EQ(step.max_context, 257u) << "the token at position 256 is the 257th";
  EXPECT_EQ(array<int32_t>(step, step.row_token_at, 6), (std::vector<int32_t>{5, 6, 7, 8, 5, 6}));
  EXPECT_EQ(array<uint32_t>(step, step.row_position_at, 6), (std::vector<uint32_t>{10, 11, 12, 256, 0, 1}));
  EXPECT_EQ(array<uint32_t>(step, step.row_seq_at, 6), (std::vector<uint32_t>{0, 0, 0, 1, 2, 2}));
  EXPECT_EQ(array<uint32_t>(step, step.row_start_at, 4), (std::vector<uint32_t>{0, 3, 4, 6}));
  EXPECT_EQ(array<uint32_t>(step, step.logit_row_at, 3), (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(array<uint32_t>(step, step.seq_write_slot_at, 3), (std::vector<uint32_t>{1, 2, 5}));
  EXPECT_EQ(step.seq_kept_at, 0u) << "nothing is pending";
}

TEST(StepBuilder, SaysWhichPendingRowsStand) {
  StepBuilder builder({.rows = 16, .seqs = 3, .pages_per_seq = 1, .page_size = 64, .vocab = 0});
  const std::vector<int32_t> tokens = {5, 6};
  const std::vector<uint32_t> pages = {3};
  std::vector<StepSequence> sequences(3, {tokens, 10, 0, 1, pages, 0});
  sequences[0].kept = 3;
  sequences[1].pending = true;
  sequences[2].kept = 1;
  sequences[2].pending = true;
  const auto block = builder.build(sequences, 1);
  ASSERT_TRUE(block.ok()) << block.status().message();
  const auto& step = *reinterpret_cast<const swy_step*>(block->data());
  ASSERT_NE(step.seq_kept_at, 0u);
  EXPECT_EQ(array<uint32_t>(step, step.seq_kept_at, 3),
            (std::vector<uint32_t>{3, SWY_KEPT_PENDING, SWY_KEPT_PENDING | 1}));
}

}  // namespace
}  // namespace switchyard
