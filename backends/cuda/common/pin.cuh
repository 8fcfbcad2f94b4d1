// SPDX-License-Identifier: Apache-2.0
// Keeps values in registers.
#pragma once

#include <type_traits>

namespace gpu {

// Keeps a value that is computed before a wait, or before a loop, in its register; otherwise the compiler computes it
// again, or only afterwards.
template <class T>
__device__ inline void pin(T& x) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (std::is_same_v<T, float>) {
    asm volatile("" : "+f"(x));
  } else if constexpr (sizeof(T) == 8) {
    asm volatile("" : "+l"(x));
  } else {
    asm volatile("" : "+r"(x));
  }
}

}  // namespace gpu
