// SPDX-License-Identifier: Apache-2.0
// Activations for scaled_bytes.cuh: panels [stage][group of eight rows][span of the stage][1024 bytes], whose rows lie
// as byte_rows.cuh says, and their scales.
#pragma once

#include "byte_rows.cuh"
#include "scaled_bytes.h"

namespace gpu {

// The scale for the largest magnitude in some elements of a row, and its inverse. Small ones become zeros.
__device__ inline float2 byte_scale(float largest) {
  const float to = fmaxf(largest, 1e-12f);
  return make_float2(to * (1.0f / 127), __fdividef(127.0f, to));
}
// The nth scale of a row. ratio: of the one before to it.
__device__ inline void put_scale(const ScaledByteScales& to, uint32_t n, uint32_t row, float scale, float ratio) {
  float* at = to.floats + to.at(n, row / 8) + row % 8;
  at[0] = ratio, at[8] = scale * (1.0f / 16);
}
// Where that ratio is not known: inverse, of the scale.
__device__ inline void put_inverse(const ScaledByteScales& to, uint32_t n, uint32_t row, float scale, float inverse) {
  put_scale(to, n, row, scale, 16 * inverse);
}

// Where byte `at` of a row's span lies among panels of `groups` groups.
__device__ inline uint64_t byte_in_panels(uint32_t groups, uint32_t span, uint32_t row, uint32_t at) {
  return (uint64_t{span / 2} * groups + row / 8) * kScaledPanel + span % 2 * kBytePanel + row % 8 * kSpan +
         ((at / 16) ^ (row % 8)) * 16 + at % 16;
}

}  // namespace gpu
