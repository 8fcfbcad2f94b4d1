// SPDX-License-Identifier: Apache-2.0
// Hashing, and a table from hashes to the indices of values that are stored elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace switchyard::constrain {

inline uint64_t mix(uint64_t h, uint64_t value) {
  h ^= value + 0x9E3779B97F4A7C15ull + (h << 6) + (h >> 2);
  h *= 0xFF51AFD7ED558CCDull;
  return h ^ h >> 32;
}

// Open addressing. The owner compares values; the table remembers each one's hash and index.
class IndexTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // The index for which `same` holds among those of this hash, or kNone.
  template <class Same>
  uint32_t find(uint64_t hash, Same same) const {
    if (slots_.empty()) return kNone;
    const auto tag = static_cast<uint32_t>(hash >> 32);
    for (size_t at = hash & (slots_.size() - 1); slots_[at].index != kNone; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].tag == tag && same(slots_[at].index)) return slots_[at].index;
    }
    return kNone;
  }
  void insert(uint64_t hash, uint32_t index) {
    if ((count_ + 1) * 2 > slots_.size()) grow();
    place({static_cast<uint32_t>(hash >> 32), index, hash});
    ++count_;
  }
  size_t bytes() const { return slots_.size() * sizeof(Slot); }
  void clear() {
    slots_.clear();
    count_ = 0;
  }

 private:
  struct Slot {
    uint32_t tag = 0, index = kNone;
    uint64_t hash = 0;
  };
  void place(const Slot& slot) {
    size_t at = slot.hash & (slots_.size() - 1);
    while (slots_[at].index != kNone) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 64 : slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.index != kNone) place(slot);
    }
  }

  std::vector<Slot> slots_;
  size_t count_ = 0;
};

}  // namespace switchyard::constrain
