// SPDX-License-Identifier: Apache-2.0
// Numbers of 16 bits with a fraction of 10: only what the backend reads.
#pragma once

#include "cuda_runtime.h"

struct __half {
  uint16_t bits;
};
struct __half2 {
  __half x, y;
};
inline __half __ushort_as_half(uint16_t bits) { return {bits}; }
inline float __half2float(__half h) {
  const uint32_t sign = uint32_t{h.bits} >> 15 << 31, exponent = h.bits >> 10 & 31, fraction = h.bits & 1023;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
  if (exponent == 0) return (sign != 0 ? -1.0f : 1.0f) * static_cast<float>(fraction) * 0x1p-24f;
  return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
}
inline float2 __half22float2(__half2 h) { return {__half2float(h.x), __half2float(h.y)}; }
