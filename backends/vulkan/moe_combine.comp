// SPDX-License-Identifier: Apache-2.0
// MOE for prompts, the end: y [rows, hidden] = sum over the slots of part [rows, top_k, hidden], in their order, + sigmoid(mix)
// * shared [rows, hidden] (+ residual).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push {
  uint64_t part, shared_part, mix, residual, y, step;  // 0: there is none
  uint hidden, top_k, domain;
};

const uint kAtOnce = 8;  // slots

void main() {
  uint rows = step_rows(step, domain);
  for (uint row = gl_WorkGroupID.y; row < rows; row += gl_NumWorkGroups.y) {
    uint64_t at = uint64_t(row) * hidden * 4;
    float weight = shared_part != 0 ? sigmoid(Floats(mix).at[row]) : 0.0;
    for (uint i = gl_GlobalInvocationID.x; i < hidden / 4; i += gl_NumWorkGroups.x * 256) {
      vec4 sum = vec4(0);
      for (uint k0 = 0; k0 < top_k; k0 += kAtOnce) {
        vec4 one[kAtOnce];
        [[unroll]] for (uint u = 0; u < kAtOnce; ++u) {
          one[u] = Float4s(part + (uint64_t(row) * top_k + min(k0 + u, top_k - 1)) * hidden * 4).at[i];
        }
        [[unroll]] for (uint u = 0; u < kAtOnce; ++u) {
          if (k0 + u < top_k) sum += one[u];
        }
      }
      if (shared_part != 0) sum = fma(vec4(weight), Float4s(shared_part + at).at[i], sum);
      if (residual != 0) sum += Float4s(residual + at).at[i];
      Float4s(y + at).at[i] = sum;
    }
  }
}
