// SPDX-License-Identifier: Apache-2.0
// Scales of activations for scaled_bytes.cuh. The bytes lie as byte_rows.cuh says.
#pragma once

#include "byte_rows.cuh"
#include "scaled_bytes.h"

namespace gpu {

// The scale for the largest magnitude in some elements of a row, and its inverse. Small ones become zeros.
__device__ inline float2 byte_scale(float largest) {
  const float to = fmaxf(largest, 1e-12f);
  return make_float2(to * (1.0f / 127), __fdividef(127.0f, to));
}
__device__ inline void put_scale(const ScaledByteScales& to, uint64_t at, float2 scale) {
  to.scale[at] = scale.x, to.inverse[at] = scale.y;
}

// Where byte `at` of a row's span lies in its panel.
__device__ inline uint32_t byte_in_panel(uint32_t row, uint32_t at) {
  return row % 8 * kSpan + ((at / 16) ^ (row % 8)) * 16 + at % 16;
}

}  // namespace gpu
