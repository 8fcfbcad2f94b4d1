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

void main() {
  uint rows = step_rows(step, domain);
  for (uint row = gl_WorkGroupID.y; row < rows; row += gl_NumWorkGroups.y) {
    uint64_t at = uint64_t(row) * hidden * 4;
    float weight = shared_part != 0 ? sigmoid(Floats(mix).at[row]) : 0.0;
    for (uint i = gl_GlobalInvocationID.x; i < hidden; i += gl_NumWorkGroups.x * 256) {
      float sum = 0;
      for (uint k = 0; k < top_k; ++k) sum += Floats(part + (uint64_t(row) * top_k + k) * hidden * 4).at[i];
      if (shared_part != 0) sum = fma(weight, Floats(shared_part + at).at[i], sum);
      if (residual != 0) sum += Floats(residual + at).at[i];
      Floats(y + at).at[i] = sum;
    }
  }
}
