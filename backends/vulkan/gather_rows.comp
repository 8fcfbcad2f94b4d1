// SPDX-License-Identifier: Apache-2.0
// GATHER_ROWS: y [logit rows, width] = x[logit_row[i]].
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push {
  uint64_t x, y, step;
  uint width, unused;
};

void main() {
  Step s = Step(step);
  for (uint row = gl_WorkGroupID.y; row < s.logit_rows; row += gl_NumWorkGroups.y) {
    uint64_t from = x + uint64_t(step_word(step, s.logit_row_at, row)) * width * 4;
    uint64_t to = y + uint64_t(row) * width * 4;
    for (uint i = gl_GlobalInvocationID.x; i < width; i += gl_NumWorkGroups.x * 256) {
      Floats(to).at[i] = Floats(from).at[i];
    }
  }
}
