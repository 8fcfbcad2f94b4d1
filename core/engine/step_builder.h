// StepBuilder: writes the block that tells the devices what one step is (switchyard/step.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "switchyard/plugin.h"
#include "switchyard/step.h"

namespace switchyard {

// One sequence's part of a step.
struct StepSequence {
  std::span<const int32_t> tokens;  // at least one
  uint32_t position = 0;            // of the first
  uint32_t read_slot = 0, write_slot = 0;
  std::span<const uint32_t> pages;  // block table: covers position + tokens.size()
  uint32_t logit_rows = 0;          // how many of the last rows want logits
};

class StepBuilder {
 public:
  // Room for steps of up to this size.
  static uint64_t block_bytes(uint32_t rows, uint32_t seqs, uint32_t pages_per_seq);

  StepBuilder(uint32_t rows, uint32_t seqs, uint32_t pages_per_seq, uint32_t page_size);

  // The finished block; valid until the next call. [no-alloc] Errors: internal, when it does not fit.
  Result<std::span<const std::byte>> build(std::span<const StepSequence> sequences);

 private:
  template <class T>
  T* array(uint32_t& at_field, uint64_t count);

  std::vector<std::byte> block_;
  uint64_t used_ = 0;
  uint64_t number_ = 0;
  uint32_t pages_per_seq_, page_size_;
};

}  // namespace switchyard
