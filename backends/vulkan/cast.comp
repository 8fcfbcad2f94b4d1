// SPDX-License-Identifier: Apache-2.0
// CAST: between f32 and bf16, to the nearest, ties to even. A thread computes one or two elements: a whole word of
// bf16.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kFrom = F32;
layout(constant_id = 1) const uint kTo = BF16;
layout(push_constant, std430) uniform Push {
  uint64_t x, y, step;
  uint width, domain;
};

// Element i; what x points at is never longer than 2^32 elements.
float element(uint i) {
  if (kFrom == F32) return Floats(x).at[i];
  return bf16_bits(Words(x).at[i / 2] >> (16 * (i & 1)) & 0xffffu);
}

void main() {
  uint n = step_rows(step, domain) * width;
  for (uint i = 2 * gl_GlobalInvocationID.x; i < n; i += 512 * gl_NumWorkGroups.x) {
    bool two = i + 1 < n;
    float first = element(i), second = two ? element(i + 1) : 0;
    if (kTo == F32) {
      Floats(y).at[i] = first;
      if (two) Floats(y).at[i + 1] = second;
    } else {
      uint high = two ? to_bf16(second) : Words(y).at[i / 2] >> 16;
      Words(y).at[i / 2] = to_bf16(first) | high << 16;
    }
  }
}
