// SPDX-License-Identifier: Apache-2.0
// The constants that rotations read (rope.glsl).
#pragma once

#include "kernels.h"

namespace gpu {

// Turns of each pair of rotating elements per position, as 64-bit fractions: [rotary_dim / 2].
swy_status put_turns(const Recording& r, uint32_t rotary_dim, float theta, Span& out);

// What rope.glsl is given. Revision 1 rotates by theta, revision 2 by its operand inv_freq.
struct Rotation {
  uint64_t turns = 0;
  uint32_t table = 0;                // kTable
  uint32_t scale_bits = 0x3f800000;  // kRopeScale: 1
};
swy_status rotation_of(const Recording& r, uint32_t rotary_dim, float theta, float rope_scale, Rotation& out);

}  // namespace gpu
