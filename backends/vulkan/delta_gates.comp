// SPDX-License-Identifier: Apache-2.0
// DELTA_GATES: beta = sigmoid(b) and g = -exp(a_log) * softplus(a + dt_bias), over [rows, value_heads].
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "gated_delta.glsl"
layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push {
  uint64_t b, a, a_log, dt_bias, beta, g, step;
  uint value_heads, unused;
};

void main() {
  uint rows = Step(step).rows, h = gl_GlobalInvocationID.x;
  if (h >= value_heads) return;
  for (uint row = gl_WorkGroupID.y; row < rows; row += gl_NumWorkGroups.y) {
    uint64_t at = (uint64_t(row) * value_heads + h) * 4;
    vec2 both = log_gates(Floats(b + at).at[0], Floats(a + at).at[0], plain_at(a_log, kALogType, h),
                          plain_at(dt_bias, kBiasType, h));
    Floats(beta + at).at[0] = both.x;
    Floats(g + at).at[0] = both.y;
  }
}
