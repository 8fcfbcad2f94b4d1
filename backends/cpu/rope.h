// SPDX-License-Identifier: Apache-2.0
// Each member's memory for rotating the heads of a row by its position: for ROPE and ATTENTION.
#pragma once

#include "kernels.h"

namespace cpu {

struct Rotation {
  uint32_t rotary_dim;
  float scale;      // of cosines and sines
  uint64_t stride;  // of one member's rates, and of its cosines
  double* rates;    // per member: angles per position [stride]
  float* turns;     // per member: the cosines of a row [stride], then its sines

  Rotation(Arena& arena, uint32_t rotary_dim_, float scale_);
  // Computes this member's rates: inv_freq[i], or without it theta^(-2i / rotary_dim); zeros beyond rotary_dim / 2.
  void begin(const swy::Call& call, float theta, const float* inv_freq) const;
};

}  // namespace cpu
