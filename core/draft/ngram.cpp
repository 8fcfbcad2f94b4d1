// SPDX-License-Identifier: Apache-2.0
#include "core/draft/ngram.h"

#include <algorithm>

namespace switchyard {
namespace {

constexpr uint32_t kKey = 8;       // tokens
constexpr uint32_t kCounted = 64;  // a repetition found by its key is counted back this far

}  // namespace

NgramDrafter::NgramDrafter(const NgramLimits& limits)
    : limits_(limits), key_(std::min(kKey, std::max(1u, limits.least))), table_(limits.table_entries) {}

void NgramDrafter::saw(std::span<const int32_t> ids) {
  for (const int32_t id : ids) saw_one(id);
}

void NgramDrafter::saw_one(int32_t id) {
  const bool goes_on = length_ > 0 && text_[match_] == id;
  text_.push_back(id);
  if (goes_on) {
    ++match_, ++length_;
  } else {
    look_up();
  }
  if (text_.size() >= key_) entry_of_end() = static_cast<uint32_t>(text_.size());
}

uint32_t& NgramDrafter::entry_of_end() {
  uint64_t hash = 0;
  for (size_t i = text_.size() - key_; i < text_.size(); ++i) {
    hash = (hash ^ static_cast<uint32_t>(text_[i])) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return table_[hash & (table_.size() - 1)];
}

// The latest place where the last key_ tokens were seen before, and how many tokens before it are the same.
void NgramDrafter::look_up() {
  length_ = 0;
  if (text_.size() < key_) return;
  match_ = entry_of_end();
  const size_t most = std::min<size_t>(match_, kCounted);
  while (length_ < most && text_[match_ - 1 - length_] == text_[text_.size() - 1 - length_]) ++length_;
  if (length_ < key_) length_ = 0;  // the entry is of other tokens
}

// Where the guess reaches the end of the text, it goes on with its own beginning: the text repeats itself.
Status NgramDrafter::propose(uint32_t most, Guesses& guesses) {
  if (length_ < limits_.least || length_ == 0) return {};
  const size_t first = guesses.ids().size();
  const uint32_t n = std::min(most, length_);
  for (size_t i = 0; i < n; ++i) {
    const size_t at = match_ + i;
    guesses.add(at < text_.size() ? text_[at] : guesses.ids()[first + at - text_.size()]);
  }
  return {};
}

}  // namespace switchyard
