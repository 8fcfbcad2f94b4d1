// SPDX-License-Identifier: Apache-2.0
// Numbers of 16 bits with a fraction of 10: only what the backend reads and writes.
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
inline __half __float2half_rn(float x) {
  const uint32_t bits = __float_as_uint(x), size = bits & 0x7fffffffu;
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const auto of = [=](uint32_t h) { return __half{static_cast<uint16_t>(sign | h)}; };
  if (size > 0x7f800000u) return {0x7fff};
  if (size >= 0x477ff000u) return of(0x7c00);
  if (size >= 0x38800000u) return of((size + 0xfff + (size >> 13 & 1) - 0x38000000u) >> 13);
  return of(__float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000u);  // steps of 2^-24
}
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline float2 __half22float2(__half2 h) { return {__half2float(h.x), __half2float(h.y)}; }
inline __half2 __hsub2(__half2 a, __half2 b) {
  return {__float2half_rn(__half2float(a.x) - __half2float(b.x)),
          __float2half_rn(__half2float(a.y) - __half2float(b.y))};
}
