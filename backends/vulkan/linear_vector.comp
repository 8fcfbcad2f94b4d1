// SPDX-License-Identifier: Apache-2.0
// LINEAR, LINEAR_ADD and RMS_NORM_LINEAR for few rows: y_i [rows, out_i] = norm(x) [rows, in] * w_i^T (+ bias_i)
// (+ residual).
// gl_WorkGroupID.y: rows of x, kM at a time.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "projection.glsl"
#include "vector.glsl"
layout(constant_id = 5) const bool kMany = true;  // the bucket has more than one row, or rows are gathered
layout(constant_id = 6) const uint kWidth = 32;   // elements of a row that are multiplied
layout(constant_id = 7) const uint kThreads = 256;
// The rows may be longer, kWhole elements (`width`); those of the weights are then read from element kFrom on, and x is
// the address of that element.
layout(constant_id = 8) const uint kFrom = 0;
layout(constant_id = 9) const uint kWhole = 32;
layout(local_size_x_id = 7) in;
const bool kOneForm = (kForm1 == 0 || kForm1 == kForm0) && (kForm2 == 0 || kForm2 == kForm0) && (kForm3 == 0 || kForm3 == kForm0);

// The rows of a task.
uint64_t row_data[kR], row_scales[kR], row_offsets[kR];
uint scale_shift;
#define FETCH fetch
#define MULTIPLY multiply
#define PIECE_AT(p) ((p) + kFrom / piece_elements(dtype))
#define PIECE_DATA(r, p) (row_data[r] + 16 * PIECE_AT(p))
#define PIECE_SCALE(r, p) (row_scales[r] + scale_bytes(dtype) * (PIECE_AT(p) >> scale_shift))
#define PIECE_OFFSET(r, p) (row_offsets[r] + 2 * (PIECE_AT(p) >> scale_shift))
#include "multiply.glsl"

// Groups of four elements of a row, and of the norm's weight, as they lie in memory. They are converted late, since a
// conversion waits for its load.
const uint kFours = kWidth / 4, kAtOnce = kThreads < 512 ? 2 : 1;
vec4 asked[kAtOnce];
uvec4 asked_norm[kAtOnce];
void ask(uint64_t from, uint first) {
  [[unroll]] for (uint i = 0; i < kAtOnce; ++i) {
    uint e4 = min(first + i * kThreads, kFours - 1);
    asked[i] = Float4s(from).at[e4];
    if (kNormed && kNormType == F32) asked_norm[i] = Word4s(extra).at[e4];
    if (kNormed && kNormType != F32) asked_norm[i].xy = Word2s(extra).at[e4];
  }
}

// Squares of 32 elements each: added in one order, whatever the number of threads.
shared float squares[kNormed ? kM * kBlocks : 1];
void stage_four(uint m, uint e4, vec4 v, uvec4 w) {
  if (kNormed) {
    float sum = fma(v.x, v.x, fma(v.y, v.y, fma(v.z, v.z, v.w * v.w)));
    [[unroll]] for (uint x = 1; x < 8; x *= 2) sum += subgroupShuffleXor(sum, x);
    if ((e4 & 7) == 0) squares[m * kBlocks + (e4 >> 3)] = sum;
    v *= bias + four_of_plain(w, kNormType);
  }
  stage(m, e4, v, 1.0);
}

// Stages row m. A row beyond the step's is staged, too, but ignored. The first elements of row 0 were requested before.
uint64_t row_at(uint row, uint total_rows) { return kMany ? input_row(min(row, total_rows - 1)) : x; }
void stage_row(uint m, uint64_t from) {
  for (uint first = gl_LocalInvocationIndex; first < kFours; first += kAtOnce * kThreads) {
    if (m != 0 || first != gl_LocalInvocationIndex) ask(from, first);
    [[unroll]] for (uint i = 0; i < kAtOnce; ++i) {
      if (first + i * kThreads < kFours) stage_four(m, first + i * kThreads, asked[i], asked_norm[i]);
    }
  }
}
// The factor of the results of row m.
float factor_of(uint m) {
  if (!kNormed) return 1.0;
  float sum = 0;
  for (uint b = gl_SubgroupInvocationID; b < kWidth / 32; b += gl_SubgroupSize) sum += squares[m * kBlocks + b];
  return inversesqrt(subgroupAdd(sum) / float(kWidth) + eps);
}

uint tasks_of(uint i) { return (rows[i] + kR - 1) / kR; }

// The rows of a task, and their first pieces.
uint index, first_row, dtype;
void begin(uint task) {
  index = 0;
  while (task >= tasks_of(index)) task -= tasks_of(index++);
  first_row = task * kR;
  Weight w = weight_of(data[index], rows[index], kWhole, kOneForm ? kForm0 : form_of(index));
  dtype = w.dtype;
  scale_shift = group_shift(w);
  [[unroll]] for (uint r = 0; r < kR; ++r) {
    uint64_t row = min(first_row + r, rows[index] - 1);
    row_data[r] = w.data + row * w.row_bytes;
    row_scales[r] = w.scales + row * w.groups * scale_bytes(w.dtype);
    row_offsets[r] = w.offsets + row * w.groups * 2;
  }
  if (uses(F32) && dtype == F32) fetch(F32, kWidth / 4, gl_SubgroupInvocationID);
  if (uses(BF16) && dtype == BF16) fetch(BF16, kWidth / 8, gl_SubgroupInvocationID);
  if (uses(I8) && dtype == I8) fetch(I8, kWidth / 16, gl_SubgroupInvocationID);
  if (uses(I4) && dtype == I4) fetch(I4, kWidth / 32, gl_SubgroupInvocationID);
  if (uses(I4A) && dtype == I4A) fetch(I4A, kWidth / 32, gl_SubgroupInvocationID);
  if (uses(MXFP4) && dtype == MXFP4) fetch(MXFP4, kWidth / 32, gl_SubgroupInvocationID);
}

void main() {
  uint tasks = tasks_of(0) + tasks_of(1) + tasks_of(2) + tasks_of(3), stride = gl_NumWorkGroups.x * gl_NumSubgroups;
  uint task = gl_SubgroupID * gl_NumWorkGroups.x + gl_WorkGroupID.x;  // neighbours on different processors
  if (!kMany) ask(x, gl_LocalInvocationIndex);
  if (task < tasks) begin(task);  // weights are on their way while the rows are staged
  uint total_rows = step_rows(step, domain), m0 = gl_WorkGroupID.y * kM;
  if (kMany && m0 >= total_rows) return;
  if (kMany) ask(row_at(m0, total_rows), gl_LocalInvocationIndex);
  [[unroll]] for (uint m = 0; m < kM; ++m) stage_row(m, row_at(m0 + m, total_rows));
  barrier();
  float inverse[kM];
  [[unroll]] for (uint m = 0; m < kM; ++m) inverse[m] = factor_of(m);
  while (task < tasks) {
    [[unroll]] for (uint a = 0; a < kR * kM; ++a) vector_acc[a] = 0;
    if (uses(F32) && dtype == F32) multiply(F32, kWidth / 4, 0);
    if (uses(BF16) && dtype == BF16) multiply(BF16, kWidth / 8, 0);
    if (uses(I8) && dtype == I8) multiply(I8, kWidth / 16, 0);
    if (uses(I4) && dtype == I4) multiply(I4, kWidth / 32, 0);
    if (uses(I4A) && dtype == I4A) multiply(I4A, kWidth / 32, 0);
    if (uses(MXFP4) && dtype == MXFP4) multiply(MXFP4, kWidth / 32, 0);
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
