// SPDX-License-Identifier: Apache-2.0
// ADD, SILU_MUL, SIGMOID_MUL, SIGMOID_SCALE_ADD: y [rows, width] of a and b, and for the last of g [rows, 1].
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "activation.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kOp = 7;  // as ops.h numbers them
layout(constant_id = 1) const bool kClamped = false;
const uint ADD = 7, SIGMOID_MUL = 71, SILU_MUL = 78, SIGMOID_SCALE_ADD = 79;
layout(push_constant, std430) uniform Push {
  uint64_t a, b, g, y, step;
  uint width, domain;
  float alpha, limit;  // kClamped
};

void main() {
  uint rows = step_rows(step, domain);
  for (uint row = gl_WorkGroupID.y; row < rows; row += gl_NumWorkGroups.y) {
    uint64_t at = uint64_t(row) * width * 4;
    float mix = kOp == SIGMOID_SCALE_ADD ? sigmoid(Floats(g).at[row]) : 0.0;
    for (uint i = gl_GlobalInvocationID.x; i < width; i += gl_NumWorkGroups.x * 256) {
      float u = Floats(a + at).at[i], v = Floats(b + at).at[i], result = u + v;
      if (kOp == SILU_MUL) result = activated(kClamped, alpha, limit, u, v);
      if (kOp == SIGMOID_MUL) result = u * sigmoid(v);
      if (kOp == SIGMOID_SCALE_ADD) result = fma(mix, v, u);
      Floats(y + at).at[i] = result;
    }
  }
}
