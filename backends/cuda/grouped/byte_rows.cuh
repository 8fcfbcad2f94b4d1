// SPDX-License-Identifier: Apache-2.0
// Activations as bytes: panels [span][group of 8 rows][1024 bytes], in the order of the weights' registers (bytes.cuh),
// and with 16-byte pieces permuted as wgmma expects.
//
// Byte 64 u + 32 s + 16 h + 4 t + j of a row's span is its element 64 u + 16 t + 8 s + 2 j + h.
#pragma once

#include "bytes.h"
#include "common/device_code.cuh"

namespace gpu {

// The scale for the largest magnitude in some elements of a row, and its inverse. Small ones become zeros.
__device__ inline float2 byte_scale(float largest) {
  const float to = fmaxf(largest, 1e-12f);
  return make_float2(to * (1.0f / 127), __fdividef(127.0f, to));
}
__device__ inline void put_scale(const ByteScales& to, uint64_t at, float2 scale) {
  to.scale[at] = scale.x, to.inverse[at] = scale.y;
}

// The even and the odd ones of eight elements, each times `inverse`, as bytes.
__device__ inline uint2 eight_bytes(const float (&v)[8], float inverse) {
  uint32_t b[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) b[i] = __float_as_uint(fmaf(v[i], inverse, 12582912.0f));  // the integer, in its low bits
  const auto pack = [&](int i) {
    return __byte_perm(__byte_perm(b[i], b[i + 2], 0x0040), __byte_perm(b[i + 4], b[i + 6], 0x0040), 0x5410);
  };
  return make_uint2(pack(0), pack(1));
}

// Where elements 8 e to 8 e + 7 of a span go: the even ones, and 16 bytes later the odd ones.
__device__ inline uint32_t byte_place(uint32_t e) { return e / 8 * 64 + e % 2 * 32 + e % 8 / 2 * 4; }

// Where byte `at` of a row's span lies in its panel.
__device__ inline uint32_t byte_in_panel(uint32_t row, uint32_t at) {
  return row % 8 * kSpan + ((at / 16) ^ (row % 8)) * 16 + at % 16;
}

}  // namespace gpu
