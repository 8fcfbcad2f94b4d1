// SPDX-License-Identifier: Apache-2.0
// EMBEDDING: y [rows, hidden] = table[token of the row], the token from the step or from the device's token buffer.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 0) const uint kForm = F32;
layout(push_constant, std430) uniform Push {
  uint64_t table, tokens, y, step;
  uint rows, width;  // of the table
};

void main() {
  uint row = gl_WorkGroupID.y;
  Step s = Step(step);
  if (row >= s.rows) return;
  int token = int(step_word(step, s.row_token_at, row));
  if (token < 0) token = Ints(tokens).at[-1 - token];
  uint id = min(uint(max(token, 0)), rows - 1);
  Weight w = weight_of(table, rows, width, kForm);
  uint64_t to = y + uint64_t(row) * width * 4;
  for (uint i = gl_GlobalInvocationID.x; i < width; i += gl_NumWorkGroups.x * 256) {
    Floats(to).at[i] = weight_at(w, id, i);
  }
}
