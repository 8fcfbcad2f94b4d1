// SPDX-License-Identifier: Apache-2.0
// StatePool: the owners of a model's slots and pages. Both are counted, since sequences that were forked share slots
// and pages until one of them changes these. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

namespace switchyard {

inline constexpr uint32_t kNoUnit = UINT32_MAX;

// Slots, or pages. Allocates only when it is made.
class UnitPool {
 public:
  explicit UnitPool(uint32_t count);

  uint32_t take();  // kNoUnit when none is left
  void share(uint32_t unit) { ++users_[unit]; }
  void release(uint32_t unit);
  bool shared(uint32_t unit) const { return users_[unit] > 1; }

  uint32_t count() const { return static_cast<uint32_t>(users_.size()); }
  uint32_t free() const { return static_cast<uint32_t>(free_.size()); }

 private:
  std::vector<uint32_t> users_, free_;
};

}  // namespace switchyard
