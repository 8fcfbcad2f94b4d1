// SPDX-License-Identifier: Apache-2.0
// Sizes in bytes that come from files: what is too large for 64 bits stays the largest number there is, which no memory
// can hold.
#pragma once

#include <cstdint>

namespace switchyard {

inline uint64_t saturating_add(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}
inline uint64_t saturating_mul(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

}  // namespace switchyard
