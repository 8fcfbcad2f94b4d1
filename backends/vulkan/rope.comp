// SPDX-License-Identifier: Apache-2.0
// ROPE: y [rows, heads, head_dim] = x, with the first kRotary elements of each head rotated by the row's position.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 0) const bool kTable = false;
layout(constant_id = 1) const float kRopeScale = 1.0;
layout(push_constant, std430) uniform Push {
  uint64_t x, y;
  uint64_t turns;  // [rotary / 2]
  uint64_t step;
  uint width, head_dim, rotary, unused;
};

#include "rope.glsl"

void main() {
  Step s = Step(step);
  for (uint row = gl_WorkGroupID.y; row < s.rows; row += gl_NumWorkGroups.y) {
    uint position = step_word(step, s.row_position_at, row), half_rotary = rotary / 2;
    uint64_t at = uint64_t(row) * width * 4;
    for (uint c = gl_GlobalInvocationID.x; c < width; c += gl_NumWorkGroups.x * 256) {
      uint i = c % head_dim;
      float u = Floats(x + at).at[c];
      if (i < rotary) {
        bool low = i < half_rotary;
        float v = Floats(x + at).at[low ? c + half_rotary : c - half_rotary];
        u = rotated(u, v, low, low ? i : i - half_rotary, position);
      }
      Floats(y + at).at[c] = u;
    }
  }
}
