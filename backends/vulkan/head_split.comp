// SPDX-License-Identifier: Apache-2.0
// HEAD_SPLIT: x [rows, heads, 2, head_dim] into first and second [rows, heads, head_dim].
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push {
  uint64_t x, first, second, step;
  uint width, head_dim;  // width: of an output
};

void main() {
  uint rows = Step(step).rows;
  for (uint row = gl_WorkGroupID.y; row < rows; row += gl_NumWorkGroups.y) {
    uint64_t at = uint64_t(row) * width * 4;
    for (uint i = gl_GlobalInvocationID.x; i < width; i += gl_NumWorkGroups.x * 256) {
      uint from = i + i / head_dim * head_dim;
      Floats(first + at).at[i] = Floats(x + 2 * at).at[from];
      Floats(second + at).at[i] = Floats(x + 2 * at).at[from + head_dim];
    }
  }
}
