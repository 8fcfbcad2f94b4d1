// SPDX-License-Identifier: Apache-2.0
// NgramDrafter: where the end of a sequence repeats a part of it, what followed that part is the guess. It drafts after
// long repetitions only, and then as many tokens as were repeated: each further row of a step costs something, and in a
// mixture-of-experts model its own experts' weights.
#pragma once

#include <cstddef>

#include "core/draft/drafter.h"

namespace switchyard {

struct NgramLimits {
  uint32_t least = 16;              // tokens that must be repeated before a guess
  size_t table_entries = 1u << 16;  // places of earlier tokens that are kept, 4 bytes each; a power of two
};

// Each token takes constant time, and 4 bytes besides the table.
class NgramDrafter final : public Drafter {
 public:
  explicit NgramDrafter(const NgramLimits& limits = {});
  void saw(std::span<const int32_t> ids) override;
  Status propose(uint32_t most, Guesses& guesses) override;
  bool may_propose_after(uint32_t more) const override { return length_ + more >= limits_.least; }
  std::string_view name() const override { return "ngram"; }
  double expected_acceptance() const override { return 0.8; }

 private:
  void saw_one(int32_t id);
  void look_up();
  uint32_t& entry_of_end();

  NgramLimits limits_;
  uint32_t key_;  // tokens that a place in the table is found by
  std::vector<int32_t> text_;
  std::vector<uint32_t> table_;  // by the hash of key_ tokens: the place after their last occurrence
  uint32_t match_ = 0;           // what the end repeats ends before this place
  uint32_t length_ = 0;          // tokens that are repeated, as far as they were counted; 0: none
};

}  // namespace switchyard
