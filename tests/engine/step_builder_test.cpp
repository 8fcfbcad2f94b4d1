// SPDX-License-Identifier: Apache-2.0
// The block that describes a step to devices: the sequence of each row, which rows want logits, and the contexts'
// lengths.
#include "core/engine/step_builder.h"

#include <gtest/gtest.h>

#include <numeric>

#include "switchyard/extensions_ahead.h"

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

// Behind the tokens of rows that may not stand are the drafts after them.
TEST(StepBuilder, SaysWhichDraftIsAfterEachRow) {
  StepBuilder builder({.rows = 4, .seqs = 1, .pages_per_seq = 1, .page_size = 64, .vocab = 0});
  const std::vector<int32_t> tokens = {-1, -3, -4, -5}, drafts = {-6, 70, -8};
  const std::vector<uint32_t> pages = {3};
  StepSequence s{tokens, 10, 0, 0, pages, 1};
  s.drafts = drafts;
  const auto block = builder.build({&s, 1}, 1);
  ASSERT_TRUE(block.ok()) << block.status().message();
  const auto& step = *reinterpret_cast<const swy_step*>(block->data());
  EXPECT_EQ(array<uint32_t>(step, step.seq_active_at, 1)[0], 1 | SWY_SEQ_MAY_STAND);
  const auto found = array<int32_t>(step, step.row_token_at, 7);
  EXPECT_EQ(found, (std::vector<int32_t>{-1, -3, -4, -5, -6, 70, -8}));
}

TEST(StepBuilder, RefusesDraftsThatDoNotSuitTheTokens) {
  StepBuilder builder({.rows = 4, .seqs = 2, .pages_per_seq = 1, .page_size = 64, .vocab = 0});
  const std::vector<int32_t> tokens = {-1, -3}, drafts = {-6, 70, -8};
  const std::vector<uint32_t> pages = {3};
  StepSequence s{tokens, 10, 0, 0, pages, 1};
  for (const size_t n : {2, 3}) {
    s.drafts = std::span(drafts).first(n);
    const auto block = builder.build({&s, 1}, 1);
    ASSERT_FALSE(block.ok());
    EXPECT_EQ(block.status().message(),
              fmt::format("a step has {} drafts for 2 tokens; each token but the last has one", n));
  }
  s.drafts = std::span(drafts).first(1);
  EXPECT_TRUE(builder.build({&s, 1}, 1).ok());
  const std::vector<StepSequence> two = {{tokens, 0, 1, 1, pages, 1}, s};
  const auto block = builder.build(two, 1);
  ASSERT_FALSE(block.ok());
  EXPECT_EQ(block.status().message(), "a step of 2 sequences has drafts; only one alone may have any");
}

// The last rows of a sequence, each at its own position; what all of them share is there once.
TEST(StepBuilder, SaysHowEveryRowIsDrawn) {
  constexpr uint32_t kVocab = 100;
  StepBuilder builder({.rows = 16, .seqs = 2, .pages_per_seq = 1, .page_size = 64, .vocab = kVocab, .draws = 3});
  const Sampler one = *Sampler::create({.seed = 1, .biases = {{4, 1.5f}}, .stop_ids = {9}}, kVocab),
                two = *Sampler::create({.temperature = 0, .seed = 2}, kVocab);
  const std::vector<int32_t> tokens = {5, 6, 7};
  const std::vector<uint32_t> pages = {3};
  const std::vector<uint32_t> mask(4, 0x11u);
  const std::vector<SampleRow> first = {{&one, 11, 0}, {&one, 12, 2}}, second = {{&two, 41, 1, mask.data()}};
  std::vector<StepSequence> sequences = {{tokens, 9, 0, 0, pages, 2, first},
                                         {std::span(tokens).first(1), 40, 1, 1, pages, 1, second}};
  ASSERT_TRUE(builder.build(sequences, 1).ok());
  const std::span<const std::byte> masks = builder.fill_masks(sequences);
  const auto* block = masks.data() - builder.masks_at();
  const auto& step = *reinterpret_cast<const swy_step*>(block);
  ASSERT_EQ(step.sample_rows, 3u);
  EXPECT_EQ(array<uint32_t>(step, step.logit_row_at, 3), (std::vector<uint32_t>{1, 2, 3}));
  const auto slots = array<swy_sample_slot>(step, step.sample_at, 3);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(slots[i].logit_row, i);
  EXPECT_EQ(slots[0].position, 11u);
  EXPECT_EQ(slots[1].position, 12u);
  EXPECT_EQ(slots[2].position, 41u);
  EXPECT_EQ(slots[0].token_entry, 0u);
  EXPECT_EQ(slots[1].token_entry, 2u);
  EXPECT_EQ(slots[2].token_entry, 1u);
  EXPECT_EQ(slots[0].bias_at, slots[1].bias_at);
  EXPECT_EQ(array<swy_logit_bias>(step, slots[1].bias_at, 1)[0].id, 4u);
  EXPECT_EQ(array<int32_t>(step, slots[1].stop_at, slots[1].stop_count), std::vector<int32_t>{9});
  EXPECT_EQ(slots[2].bias_count + slots[2].stop_count + slots[0].mask_at + slots[1].mask_at, 0u);
  EXPECT_EQ(array<uint32_t>(step, slots[2].mask_at, 4), mask);
  EXPECT_EQ(array<swy_sample_params>(step, step.sample_params_at, 3)[1].seed, 1u);
  EXPECT_EQ(array<swy_sample_params>(step, step.sample_params_at, 3)[2].seed, 2u);
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
