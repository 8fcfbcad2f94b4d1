// SPDX-License-Identifier: Apache-2.0
// StepBuilder: writes the block that describes one step to the devices (switchyard/step.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/sampling/sampler.h"
#include "switchyard/plugin.h"
#include "switchyard/step.h"

namespace switchyard {

// A device's sampling of a row.
struct SampleRow {
  const Sampler* sampler = nullptr;
  uint64_t position = 0;           // index of the token being sampled
  uint32_t token_entry = 0;        // where the token goes in the device's token buffer
  const uint32_t* mask = nullptr;  // [ceil(vocab / 32)], read when the head's turn comes
  uint32_t counts_read_slot = SWY_NO_SLOT, counts_write_slot = SWY_NO_SLOT;
};

// One sequence's part of a step.
struct StepSequence {
  std::span<const int32_t> tokens;  // at least one
  uint32_t position = 0;            // of the first
  uint32_t read_slot = 0, write_slot = 0;
  std::span<const uint32_t> pages;          // block table: covers position + tokens.size()
  uint32_t logit_rows = 0;                  // how many of the last rows want logits
  std::span<const SampleRow> samples = {};  // what the device samples: of the last rows, which then want logits
  uint32_t kept = 0;                        // pending rows of the read slot that stand
  bool pending = false;                     // its own rows stay pending
  std::span<const int32_t> drafts = {};     // after each row but the last, where not all may stand; it is alone then
};

// Errors: usage, for an id outside the vocabulary.
Status check_token_ids(std::span<const int32_t> ids, uint32_t vocab);

class StepBuilder {
 public:
  // Room for steps of up to this size. `vocab` is 0 where no device samples. `draws`: sampled rows besides one a
  // sequence.
  struct Limits {
    uint32_t rows = 0, seqs = 0, pages_per_seq = 0, page_size = 0, vocab = 0, draws = 0;
    uint64_t block_bytes() const;
  };
  explicit StepBuilder(const Limits& limits);

  // The block up to its masks, which end it; valid until the next call. [no-alloc] Errors: internal, when it does not
  // fit, and for drafts that do not suit the tokens. `number` counts the steps of the devices.
  Result<std::span<const std::byte>> build(std::span<const StepSequence> sequences, uint64_t number);
  // The masks of the last build, which go to `masks_at` in its block; nothing where it has none. [no-alloc]
  std::span<const std::byte> fill_masks(std::span<const StepSequence> sequences);
  uint64_t masks_at() const { return masks_at_; }

 private:
  template <class T>
  T* array(uint32_t& at_field, uint64_t count);
  Status add_samples(swy_step& step, std::span<const StepSequence> sequences);

  Limits limits_;
  std::vector<std::byte> block_;
  uint64_t used_ = 0, masks_at_ = 0;
};

}  // namespace switchyard
