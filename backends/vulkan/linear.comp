// SPDX-License-Identifier: Apache-2.0
// LINEAR, LINEAR_ADD and RMS_NORM_LINEAR for any shape: y_i [rows, out_i] = norm(x) [rows, in] * w_i^T (+ bias_i)
// (+ residual).
// A subgroup per element of the output; gl_WorkGroupID.y: row of x.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "projection.glsl"
layout(local_size_x = 256) in;

void main() {
  uint total_rows = step_rows(step, domain), lane = gl_SubgroupInvocationID;
  uint tasks = rows[0] + rows[1] + rows[2] + rows[3];
  uint stride = gl_NumWorkGroups.x * gl_NumSubgroups;
  for (uint task = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID; task < tasks; task += stride) {
    uint i = 0, row = task;
    while (row >= rows[i]) row -= rows[i++];
    Weight w = weight_of(data[i], rows[i], width, form_of(i));
    for (uint m = gl_WorkGroupID.y; m < total_rows; m += gl_NumWorkGroups.y) {
      uint64_t from = input_row(m);
      float sum = 0, squares = 0;
      for (uint k = lane; k < width; k += gl_SubgroupSize) {
        float v = Floats(from).at[k];
        squares = fma(v, v, squares);
        if (kNormed) v *= bias + plain_at(extra, kNormType, k);
        sum = fma(v, weight_at(w, row, k), sum);
      }
      sum = subgroupAdd(sum);
      if (kNormed) sum *= inversesqrt(subgroupAdd(squares) / float(width) + eps);
      if (lane == 0) put(i, m, row, sum);
    }
  }
}
