// SPDX-License-Identifier: Apache-2.0
// Shared by the shaders of LINEAR and its fused forms: one input times up to four weights.
layout(constant_id = 0) const uint kForm0 = F32;
layout(constant_id = 1) const uint kForm1 = 0;
layout(constant_id = 2) const uint kForm2 = 0;
layout(constant_id = 3) const uint kForm3 = 0;
layout(constant_id = 4) const uint kFlags = 0;
layout(push_constant, std430) uniform Push {
  uint64_t x;         // [rows, width]
  uint64_t extra;     // kResidual: [rows, rows of weight 0]; kNormed: the norm's weight [width]
  uint64_t step;
  uint width, scales_before;  // tiles: bytes from the first scale to x
  float eps, bias;    // of the norm
  uint64_t biases;    // kBiased: Biases
  uint64_t data[4];
  uint64_t y[4];      // [rows, rows of the weight]
  uint rows[4];       // of the weights
};

const bool kNormed = (kFlags & 1) != 0, kResidual = (kFlags & 2) != 0;
const bool kGather = (kFlags & 4) != 0;  // row i of the output is row logit_row[i] of x
const bool kBiased = (kFlags & 8) != 0;
const uint domain = kFlags >> 4 & 3;     // of the rows
const uint kNormType = kFlags >> 8 & 15;

uint form_of(uint i) { return i == 0 ? kForm0 : i == 1 ? kForm1 : i == 2 ? kForm2 : kForm3; }
bool uses(uint dtype) {
  return (kForm0 & 0xff) == dtype || (kForm1 & 0xff) == dtype || (kForm2 & 0xff) == dtype || (kForm3 & 0xff) == dtype;
}

// Where row m of the input lies.
uint64_t input_row(uint m) {
  uint row = kGather ? step_word(step, Step(step).logit_row_at, m) : m;
  return x + uint64_t(row) * width * 4;
}

// What is added to each row of the output of the weights; type 0: nothing.
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Biases {
  uint64_t at[4];
  uint types[4];
};
float bias_of(uint i, uint row) {
  if (!kBiased) return 0.0;
  Biases b = Biases(biases);
  return b.types[i] == 0 ? 0.0 : plain_at(b.at[i], b.types[i], row);
}

void put(uint i, uint m, uint row, float sum) {
  if (kBiased) sum += bias_of(i, row);
  uint64_t at = (uint64_t(m) * rows[i] + row) * 4;
  Floats(y[i] + at).at[0] = kResidual ? sum + Floats(extra + at).at[0] : sum;
}
