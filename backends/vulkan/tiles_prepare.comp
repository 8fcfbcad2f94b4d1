// SPDX-License-Identifier: Apache-2.0
// Rows of activations in the form of the tile shaders, normed if requested (x * rsqrt(mean(x^2) + eps) * (bias + w)).
//
// HALF: fp16, each row times a power of two that brings its largest element to [2^10, 2^11), so that nothing overflows.
// The inverse goes to `scales`. Every eight elements are in the order 0 4 1 5 2 6 3 7, in which quants are unpacked.
// Otherwise fp32. A workgroup per row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"
#include "weights.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kNormType = 0;  // 0: no norm
layout(push_constant, std430) uniform Push {
  uint64_t x, norm, to, scales, tiles, step;  // tiles: of a sorted mixture, with the number of rows; or 0
  uint width, domain;
  float eps, bias;
};

shared float largest[32];
float workgroup_max(float v) {
  v = subgroupMax(v);
  if (subgroupElect()) largest[gl_SubgroupID] = v;
  barrier();
  float most = 0;
  for (uint i = 0; i < gl_NumSubgroups; ++i) most = max(most, largest[i]);
  barrier();
  return most;
}

void main() {
  uint row = gl_WorkGroupID.x;
  uint rows = tiles == 0 ? step_rows(step, domain) : Words(tiles).at[1];
  if (row >= rows) return;
  uint64_t from = x + uint64_t(row) * width * 4;
  float squares = 0, most = 0;
  for (uint i = gl_LocalInvocationIndex; i < width / 4; i += 256) {
    vec4 v = Float4s(from).at[i];
    if (kNormType != 0) {
      squares = fma(v.x, v.x, fma(v.y, v.y, fma(v.z, v.z, fma(v.w, v.w, squares))));
      v *= bias + plain_four(norm, kNormType, i);
    }
    vec4 a = abs(v);
    most = max(most, max(max(a.x, a.y), max(a.z, a.w)));
  }
  float scale = kNormType != 0 ? inversesqrt(workgroup_sum(squares) / float(width) + eps) : 1.0;
#ifdef HALF
  most = workgroup_max(most) * scale;
  int exponent = most > 0.0 ? clamp(int(floatBitsToUint(most) >> 23) - 127, -100, 100) : 0;
  float up = uintBitsToFloat(uint(127 + 10 - exponent) << 23);
  if (gl_LocalInvocationIndex == 0) Floats(scales).at[row] = uintBitsToFloat(uint(127 - 10 + exponent) << 23);
  scale *= up;
  uint64_t target = to + uint64_t(row) * width * 2;
  for (uint i = gl_LocalInvocationIndex; i < width / 8; i += 256) {
    vec4 a = Float4s(from).at[2 * i] * scale, b = Float4s(from).at[2 * i + 1] * scale;
    if (kNormType != 0) {
      a *= bias + plain_four(norm, kNormType, 2 * i);
      b *= bias + plain_four(norm, kNormType, 2 * i + 1);
    }
    Word4s(target).at[i] = uvec4(packHalf2x16(vec2(a.x, b.x)), packHalf2x16(vec2(a.y, b.y)), packHalf2x16(vec2(a.z, b.z)),
                                 packHalf2x16(vec2(a.w, b.w)));
  }
#else
  uint64_t target = to + uint64_t(row) * width * 4;
  for (uint i = gl_LocalInvocationIndex; i < width / 4; i += 256) {
    vec4 v = Float4s(from).at[i] * scale;
    if (kNormType != 0) v *= bias + plain_four(norm, kNormType, i);
    Float4s(target).at[i] = v;
  }
#endif
}
