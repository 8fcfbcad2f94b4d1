// SPDX-License-Identifier: Apache-2.0
// LINEAR and its fused forms for prompts: tiles of y_i [rows, out_i] = x [rows, in] * w_i^T (+ bias_i) (+ residual).
// gl_WorkGroupID.x: tile of columns, of all weights one after the other; .y: tile of rows.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "tiles_head.glsl"
#include "common.glsl"
#include "weights.glsl"
#include "projection.glsl"
layout(local_size_x = TILE_THREADS) in;

const bool kPairs = false;
uint total_rows, row0, column0, index;
Weight weight;

// x is the output of tiles_prepare.comp, with the inverse scales `scales_before` bytes before it (COOPERATIVE), or
// fp32.
#ifdef COOPERATIVE
uint64_t a_row(uint m) { return x + uint64_t(min(row0 + m, total_rows - 1)) * width * 2; }
float row_scale(uint m) { return Floats(x - scales_before).at[m]; }
#else
uint64_t a_row(uint m) { return x + uint64_t(min(row0 + m, total_rows - 1)) * width * 4; }
float row_scale(uint m) { return 1.0; }
#endif

void find_b_row(uint n);
void finish(uint m, uint n, vec4 v, vec4 unused_pair);
#include "tiles.glsl"

void find_b_row(uint n) {
  uint64_t row = min(column0 + n, rows[index] - 1);
  b_data = weight.data + row * weight.row_bytes;
  b_scale = weight.scales + row * weight.groups * scale_bytes(weight.dtype);
  b_offset = weight.offsets + row * weight.groups * 2;
}

void finish(uint m, uint n, vec4 v, vec4 unused_pair) {
  m += row0;
  n += column0;
  if (m >= total_rows) return;
  v *= row_scale(m);
  if (kBiased) {
    for (uint i = 0; i < 4; ++i) v[i] += bias_of(index, min(n + i, rows[index] - 1));
  }
  uint64_t at = (uint64_t(m) * rows[index] + n) * 4;
  if (rows[index] % 4 == 0) {
    if (n >= rows[index]) return;
    if (kResidual) v += Float4s(extra + at).at[0];
    Float4s(y[index] + at).at[0] = v;
    return;
  }
  for (uint i = 0; i < 4 && n + i < rows[index]; ++i) {
    Floats(y[index] + at).at[i] = kResidual ? v[i] + Floats(extra + at).at[i] : v[i];
  }
}

void main() {
  total_rows = step_rows(step, domain);
  row0 = gl_WorkGroupID.y * kBM;
  if (row0 >= total_rows) return;
  uint tile = gl_WorkGroupID.x;
  index = 0;
  while (tile >= (rows[index] + kBN - 1) / kBN) tile -= (rows[index++] + kBN - 1) / kBN;
  column0 = tile * kBN;
  weight = weight_of(data[index], rows[index], width, form_of(index));
  if (uses(F32) && weight.dtype == F32) multiply_tile(F32, weight, width);
  if (uses(BF16) && weight.dtype == BF16) multiply_tile(BF16, weight, width);
  if (uses(I8) && weight.dtype == I8) multiply_tile(I8, weight, width);
  if (uses(I4) && weight.dtype == I4) multiply_tile(I4, weight, width);
  if (uses(I4A) && weight.dtype == I4A) multiply_tile(I4A, weight, width);
#ifndef COOPERATIVE
  if (uses(MXFP4) && weight.dtype == MXFP4) multiply_tile(MXFP4, weight, width);
#endif
}
