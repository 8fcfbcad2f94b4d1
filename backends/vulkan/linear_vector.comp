// LINEAR, LINEAR_ADD and RMS_NORM_LINEAR for few rows: y_i [rows, out_i] = norm(x) [rows, in] * w_i^T (+ residual).
// gl_WorkGroupID.y: rows of x, kM at a time.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"
#include "weights.glsl"
#include "projection.glsl"
#include "vector.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 5) const bool kMany = true;  // the bucket has more than one row, or rows are gathered
layout(constant_id = 6) const uint kWidth = 32;   // elements of a row: `width`

// The rows of a task.
uint64_t row_data[kR], row_scales[kR], row_offsets[kR];
uint scale_shift;
#define FETCH fetch
#define MULTIPLY multiply
#define PIECE_DATA(r, p) (row_data[r] + 16 * (p))
#define PIECE_SCALE(r, p) (row_scales[r] + 2 * ((p) >> scale_shift))
#define PIECE_OFFSET(r, p) (row_offsets[r] + 2 * ((p) >> scale_shift))
#include "multiply.glsl"

// Stages row m and returns what its results are multiplied by. A row beyond the step's is staged, too, and not used.
float stage_row(uint m, uint row, uint total_rows) {
  uint64_t from = kMany ? input_row(min(row, total_rows - 1)) : x;
  const uint kFours = kWidth / 4, kAtOnce = 2;
  float squares = 0;
  for (uint first = gl_LocalInvocationIndex; first < kFours; first += kAtOnce * 256) {
    vec4 v[kAtOnce], w[kAtOnce];
    [[unroll]] for (uint i = 0; i < kAtOnce; ++i) {
      uint e4 = min(first + i * 256, kFours - 1);
      v[i] = Float4s(from).at[e4];
      w[i] = kNormed ? bias + plain_four(extra, kNormType, e4) : vec4(1);
    }
    [[unroll]] for (uint i = 0; i < kAtOnce; ++i) {
      if (first + i * 256 >= kFours) continue;
      if (kNormed) squares = fma(v[i].x, v[i].x, fma(v[i].y, v[i].y, fma(v[i].z, v[i].z, fma(v[i].w, v[i].w, squares))));
      stage(m, first + i * 256, kNormed ? v[i] * w[i] : v[i], 1.0);
    }
  }
  return kNormed ? inversesqrt(workgroup_sum(squares) / float(kWidth) + eps) : 1.0;
}

uint tasks_of(uint i) { return (rows[i] + kR - 1) / kR; }

// The rows of a task, and their first pieces.
uint index, first_row, dtype;
void begin(uint task) {
  index = 0;
  while (task >= tasks_of(index)) task -= tasks_of(index++);
  first_row = task * kR;
  Weight w = weight_of(data[index], rows[index], kWidth, form_of(index));
  dtype = w.dtype;
  scale_shift = group_shift(w);
  [[unroll]] for (uint r = 0; r < kR; ++r) {
    uint64_t row = min(first_row + r, rows[index] - 1);
    row_data[r] = w.data + row * w.row_bytes;
    row_scales[r] = w.scales + row * w.groups * 2;
    row_offsets[r] = w.offsets + row * w.groups * 2;
  }
  if (uses(F32) && dtype == F32) fetch(F32, kWidth / 4, gl_SubgroupInvocationID);
  if (uses(BF16) && dtype == BF16) fetch(BF16, kWidth / 8, gl_SubgroupInvocationID);
  if (uses(I8) && dtype == I8) fetch(I8, kWidth / 16, gl_SubgroupInvocationID);
  if (uses(I4) && dtype == I4) fetch(I4, kWidth / 32, gl_SubgroupInvocationID);
  if (uses(I4A) && dtype == I4A) fetch(I4A, kWidth / 32, gl_SubgroupInvocationID);
}

void main() {
  uint tasks = tasks_of(0) + tasks_of(1) + tasks_of(2) + tasks_of(3), stride = gl_NumWorkGroups.x * gl_NumSubgroups;
  uint task = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID;
  if (task < tasks) begin(task);  // weights are on their way while the rows are staged
  uint total_rows = step_rows(step, domain), m0 = gl_WorkGroupID.y * kM;
  if (kMany && m0 >= total_rows) return;
  float inverse[kM];
  [[unroll]] for (uint m = 0; m < kM; ++m) inverse[m] = stage_row(m, m0 + m, total_rows);
  barrier();
  while (task < tasks) {
    [[unroll]] for (uint a = 0; a < kR * kM; ++a) vector_acc[a] = 0;
    if (uses(F32) && dtype == F32) multiply(F32, kWidth / 4, 0);
    if (uses(BF16) && dtype == BF16) multiply(BF16, kWidth / 8, 0);
    if (uses(I8) && dtype == I8) multiply(I8, kWidth / 16, 0);
    if (uses(I4) && dtype == I4) multiply(I4, kWidth / 32, 0);
    if (uses(I4A) && dtype == I4A) multiply(I4A, kWidth / 32, 0);
    uint done_index = index, done_row = first_row;
    task += stride;
    if (task < tasks) begin(task);  // the next weights are on their way while these results are summed
    [[unroll]] for (uint r = 0; r < kR; ++r) {
      [[unroll]] for (uint m = 0; m < kM; ++m) {
        float sum = subgroupAdd(vector_acc[r * kM + m]) * inverse[m];
        bool mine = gl_SubgroupInvocationID == (r * kM + m) % gl_SubgroupSize;
        if (mine && done_row + r < rows[done_index] && m0 + m < total_rows) put(done_index, m0 + m, done_row + r, sum);
      }
    }
  }
}
