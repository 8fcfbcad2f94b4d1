// SPDX-License-Identifier: Apache-2.0
// The numbers that swy_sampling_self_hash (sampling_math.h) hashes, for the host to compare.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "sampling.glsl"
layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push { uint64_t values; };

void main() {
  uint i = gl_LocalInvocationIndex;
  uint64_t seed = uint64_t(i) * 0x9E3779B97F4A7C15ul;
  float logit = mul(float(int(i) - 128), uintBitsToFloat(0x3ebd70a4u));
  float y = adjust(uintBitsToFloat(0x3fa66666u), uintBitsToFloat(0x3f44ec4fu), uintBitsToFloat(0x3e99999au),
                   uintBitsToFloat(0x3f333333u), logit, i % 7, uintBitsToFloat(0x3de147aeu));
  Floats(values).at[3 * i] = gumbel(uvec2(uint(seed & 0xffffffffu), uint(seed >> 32)), uvec2(i, 0), i * 7);
  Floats(values).at[3 * i + 1] = exp_of(mul(float(i), uintBitsToFloat(0xbde147aeu)));
  Floats(values).at[3 * i + 2] = clamp_value(mul(y, uintBitsToFloat(0x3fb6db6eu)));
}
