// SPDX-License-Identifier: Apache-2.0
// The rotation of heads by the positions of their rows.
#pragma once

#include "common/device_code.cuh"
#include "host/kernels.h"

namespace gpu {

constexpr uint32_t kMostRotary = 256;

struct Rotation {
  double turns[kMostRotary / 2];  // of a pair of elements per position
  const float* inv_freq;          // [rotary_dim / 2]: radians, instead of `turns`; null: none
  float rope_scale;               // of cosines and sines
};

// Of an operation: revision 1 rotates by theta, revision 2 by its operand inv_freq.
void take_rotation(const Recording& r, uint32_t rotary_dim, float theta, float scale, Rotation& out);

// Sine and cosine of pair i at a position.
__device__ inline float2 sine_cosine(const Rotation& r, uint32_t i, uint32_t position) {
  constexpr double kTurn = 6.283185307179586476925;
  const double per_position = r.inv_freq != nullptr ? r.inv_freq[i] * (1 / kTurn) : r.turns[i];
  const double turns = position * per_position;  // the fraction of a turn is exact
  float s, c;
  sincosf(static_cast<float>((turns - rint(turns)) * kTurn), &s, &c);
  return make_float2(s * r.rope_scale, c * r.rope_scale);
}

}  // namespace gpu
