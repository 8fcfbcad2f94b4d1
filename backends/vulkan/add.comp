// SPDX-License-Identifier: Apache-2.0
// ADD: y [rows, width] = a + b.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push {
  uint64_t a, b, y, step;
  uint width, domain;
};

void main() {
  uint rows = step_rows(step, domain);
  for (uint row = gl_WorkGroupID.y; row < rows; row += gl_NumWorkGroups.y) {
    uint64_t at = uint64_t(row) * width * 4;
    for (uint i = gl_GlobalInvocationID.x; i < width; i += gl_NumWorkGroups.x * 256) {
      Floats(y + at).at[i] = Floats(a + at).at[i] + Floats(b + at).at[i];
    }
  }
}
