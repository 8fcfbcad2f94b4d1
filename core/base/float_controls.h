// SPDX-License-Identifier: Apache-2.0
// How a thread's floating point rounds, traps, and flushes to zero, in one number without the flags of past operations.
#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace switchyard {

inline uint64_t float_controls() {
#if defined(__x86_64__)
  return _mm_getcsr() & 0xffc0u;
#elif defined(__aarch64__)
  uint64_t fpcr = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
  return fpcr;
#else
  return 0;
#endif
}

// `controls`: what float_controls gave.
inline void set_float_controls(uint64_t controls) {
#if defined(__x86_64__)
  _mm_setcsr((_mm_getcsr() & ~0xffc0u) | static_cast<uint32_t>(controls));
#elif defined(__aarch64__)
  __asm__ volatile("msr fpcr, %0" : : "r"(controls));
#else
  (void)controls;
#endif
}

}  // namespace switchyard
