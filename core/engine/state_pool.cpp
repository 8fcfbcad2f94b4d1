// SPDX-License-Identifier: Apache-2.0
#include "core/engine/state_pool.h"

namespace switchyard {

UnitPool::UnitPool(uint32_t count) : users_(count) {
  free_.reserve(count);
  for (uint32_t i = count; i-- > 0;) free_.push_back(i);
}

uint32_t UnitPool::take() {
  if (free_.empty()) return kNoUnit;
  const uint32_t unit = free_.back();
  free_.pop_back();
  users_[unit] = 1;
  return unit;
}

void UnitPool::release(uint32_t unit) {
  if (--users_[unit] == 0) free_.push_back(unit);
}

}  // namespace switchyard
