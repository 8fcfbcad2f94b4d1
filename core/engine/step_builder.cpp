// SPDX-License-Identifier: Apache-2.0
#include "core/engine/step_builder.h"

#include <algorithm>
#include <cstring>

#include "core/engine/sampling_path.h"
#include "switchyard/extensions_ahead.h"

namespace switchyard {
namespace {

constexpr uint64_t kAlign = 16;
uint64_t aligned(uint64_t n) { return (n + kAlign - 1) / kAlign * kAlign; }
uint64_t mask_bytes(uint32_t vocab) { return (uint64_t{vocab} + 31) / 32 * 4; }

Status check_drafts(std::span<const StepSequence> sequences) {
  for (const StepSequence& s : sequences) {
    if (s.drafts.empty()) continue;
    if (sequences.size() > 1) {
      return error(Code::internal, "a step of {} sequences has drafts; only one alone may have any", sequences.size());
    }
    if (s.drafts.size() + 1 != s.tokens.size()) {
      return error(Code::internal, "a step has {} drafts for {} tokens; each token but the last has one",
                   s.drafts.size(), s.tokens.size());
    }
  }
  return {};
}

}  // namespace

uint64_t StepBuilder::Limits::block_bytes() const {
  const uint64_t slot = vocab == 0 ? 0 : aligned(sizeof(swy_sample_slot)) + aligned(sizeof(swy_sample_params));
  const uint64_t sampled = vocab == 0
                               ? 0
                               : slot + aligned(mask_bytes(vocab)) + aligned(kMaxRowBiases * sizeof(swy_logit_bias)) +
                                     aligned(kMaxRowStops * sizeof(int32_t));
  return aligned(sizeof(swy_step)) + 3 * aligned(uint64_t{rows} * 4) + aligned(uint64_t{rows} * 8) +
         4 * aligned(uint64_t{seqs} * 4) + aligned((uint64_t{seqs} + 1) * 4) +
         aligned(uint64_t{seqs} * pages_per_seq * 4) + seqs * sampled + draws * slot;
}

StepBuilder::StepBuilder(const Limits& limits) : limits_(limits), block_(limits.block_bytes()) {}

template <class T>
T* StepBuilder::array(uint32_t& at_field, uint64_t count) {
  if (used_ + aligned(count * sizeof(T)) > block_.size()) return nullptr;
  at_field = static_cast<uint32_t>(used_);
  auto* p = reinterpret_cast<T*>(block_.data() + used_);
  used_ += aligned(count * sizeof(T));
  return p;
}

Result<std::span<const std::byte>> StepBuilder::build(std::span<const StepSequence> sequences, uint64_t number) {
  auto& step = *reinterpret_cast<swy_step*>(block_.data());
  step = {};
  step.struct_size = sizeof step;
  step.number = number;
  step.seqs = static_cast<uint32_t>(sequences.size());
  step.page_size = limits_.page_size;
  step.block_table_stride = limits_.pages_per_seq;
  bool pending = false;
  for (const StepSequence& s : sequences) {
    pending = pending || s.pending || s.kept > 0;
    step.rows += static_cast<uint32_t>(s.tokens.size());
    step.logit_rows += s.logit_rows;
    step.sample_rows += static_cast<uint32_t>(s.samples.size());
  }
  used_ = aligned(sizeof step);
  SWY_TRY(check_drafts(sequences));
  const bool drafted = !sequences.empty() && !sequences[0].drafts.empty();
  auto* token = array<int32_t>(step.row_token_at, drafted ? 2 * step.rows : step.rows);
  auto* position = array<uint32_t>(step.row_position_at, step.rows);
  auto* row_seq = array<uint32_t>(step.row_seq_at, step.rows);
  auto* logit_row = array<uint32_t>(step.logit_row_at, step.logit_rows);
  auto* start = array<uint32_t>(step.row_start_at, step.seqs + 1);
  auto* active = array<uint32_t>(step.seq_active_at, step.seqs);
  auto* read_slot = array<uint32_t>(step.seq_read_slot_at, step.seqs);
  auto* write_slot = array<uint32_t>(step.seq_write_slot_at, step.seqs);
  auto* kept = pending ? array<uint32_t>(step.seq_kept_at, step.seqs) : nullptr;
  auto* table = array<uint32_t>(step.block_table_at, uint64_t{step.seqs} * limits_.pages_per_seq);
  if (table == nullptr) return error(Code::internal, "a step of {} rows does not fit its block", step.rows);

  uint32_t row = 0, wanted = 0;
  for (uint32_t s = 0; s < step.seqs; ++s) {
    const StepSequence& q = sequences[s];
    const auto n = static_cast<uint32_t>(q.tokens.size());
    start[s] = row;
    active[s] = drafted ? 1 | SWY_SEQ_MAY_STAND : 1;
    read_slot[s] = q.read_slot;
    write_slot[s] = q.write_slot;
    if (kept != nullptr) kept[s] = q.kept | (q.pending ? SWY_KEPT_PENDING : 0);
    std::copy(q.pages.begin(), q.pages.end(), table + uint64_t{s} * limits_.pages_per_seq);
    for (uint32_t i = 0; i < n; ++i, ++row) {
      token[row] = q.tokens[i];
      position[row] = q.position + i;
      row_seq[row] = s;
      if (i + q.logit_rows >= n) logit_row[wanted++] = row;
    }
    step.max_context = std::max(step.max_context, q.position + n);
  }
  start[step.seqs] = row;
  if (drafted) {
    token[2 * row - 1] = 0;
    std::copy(sequences[0].drafts.begin(), sequences[0].drafts.end(), token + row);
  }
  masks_at_ = used_;
  SWY_TRY(add_samples(step, sequences));
  step.total_bytes = static_cast<uint32_t>(used_);
  return std::span<const std::byte>(block_.data(), masks_at_);
}

Status StepBuilder::add_samples(swy_step& step, std::span<const StepSequence> sequences) {
  if (step.sample_rows == 0) return {};
  step.sample_params_size = sizeof(swy_sample_params);
  auto* slots = array<swy_sample_slot>(step.sample_at, step.sample_rows);
  auto* params = array<swy_sample_params>(step.sample_params_at, step.sample_rows);
  if (params == nullptr) return error(Code::internal, "a step that samples {} rows does not fit", step.sample_rows);
  uint32_t logit_row = 0;
  const auto full = [] {
    return Status(error(Code::internal, "the biases, stop ids and masks of a step do not fit its block"));
  };
  swy_sample_slot* next = slots;
  for (const StepSequence& q : sequences) {
    logit_row += q.logit_rows;
    if (q.samples.empty()) continue;
    const swy_sample_slot* const first = next;
    for (const SampleRow& r : q.samples) {
      swy_sample_slot& slot = *next++;
      slot = {};
      *params++ = r.sampler->params();
      slot.logit_row = logit_row - static_cast<uint32_t>(q.samples.size()) + static_cast<uint32_t>(&slot - first);
      slot.token_entry = r.token_entry;
      slot.position = r.position;
      slot.counts_read_slot = r.counts_read_slot;
      slot.counts_write_slot = r.counts_write_slot;
    }
    const auto copy = [&]<class T>(std::span<const T> from, uint32_t& at, uint32_t& count) {
      count = static_cast<uint32_t>(from.size());
      if (from.empty()) return true;
      auto* to = array<T>(at, from.size());
      if (to != nullptr) std::copy(from.begin(), from.end(), to);
      return to != nullptr;
    };
    // All rows of a sequence are sampled alike, so they share these.
    swy_sample_slot like{};
    const Sampler& sampler = *q.samples[0].sampler;
    if (!copy(sampler.biases(), like.bias_at, like.bias_count) ||
        !copy(sampler.stop_ids(), like.stop_at, like.stop_count)) {
      return full();
    }
    for (swy_sample_slot* slot = next - q.samples.size(); slot != next; ++slot) {
      slot->bias_at = like.bias_at, slot->bias_count = like.bias_count;
      slot->stop_at = like.stop_at, slot->stop_count = like.stop_count;
    }
  }
  masks_at_ = used_;
  next = slots;
  for (const StepSequence& q : sequences) {
    for (const SampleRow& r : q.samples) {
      if (r.mask != nullptr && array<uint32_t>(next->mask_at, mask_bytes(limits_.vocab) / 4) == nullptr) return full();
      ++next;
    }
  }
  return {};
}

std::span<const std::byte> StepBuilder::fill_masks(std::span<const StepSequence> sequences) {
  const auto& step = *reinterpret_cast<const swy_step*>(block_.data());
  const auto* slot = SWY_STEP_ARRAY(&step, swy_sample_slot, sample_at);
  for (const StepSequence& q : sequences) {
    for (const SampleRow& r : q.samples) {
      if (r.mask != nullptr) std::memcpy(block_.data() + slot->mask_at, r.mask, mask_bytes(limits_.vocab));
      ++slot;
    }
  }
  return {block_.data() + masks_at_, used_ - masks_at_};
}

Status check_token_ids(std::span<const int32_t> ids, uint32_t vocab) {
  for (const int32_t id : ids) {
    if (id < 0 || static_cast<uint32_t>(id) >= vocab) {
      return error(Code::usage, "token id {} is outside the vocabulary; ids go from 0 to {}", id, vocab - 1);
    }
  }
  return {};
}

}  // namespace switchyard
