// SPDX-License-Identifier: Apache-2.0
// The constants that rotations read (rope.glsl).
#pragma once

#include "kernels.h"

namespace gpu {

// Turns of each pair of rotating elements per position, as 64-bit fractions: [rotary_dim / 2].
swy_status put_turns(const Recording& r, uint32_t rotary_dim, float theta, Span& out);

}  // namespace gpu
