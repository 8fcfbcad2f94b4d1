// SPDX-License-Identifier: Apache-2.0
// MOE for prompts, by tiles of rows that share an expert (moe_sort.comp).
//
// GATE_UP: h [entries, width] = act(gate, up) of the entry's row of x. Otherwise: y [rows * top_k, hidden] = weight *
// (down h + bias), at the entry's place.
//
// gl_WorkGroupID.x: tile of columns; .y: tile of entries. Without a table of tiles (0), for the shared expert: entries
// are rows, with weight 1.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "tiles_head.glsl"
#include "common.glsl"
#include "weights.glsl"
#include "activation.glsl"
layout(local_size_x = TILE_THREADS) in;
layout(constant_id = 0) const uint kForm = F32;
layout(constant_id = 1) const bool kClamped = false;
layout(constant_id = 2) const uint kBiasType = 0;  // 0: there are none
layout(push_constant, std430) uniform Push {
  uint64_t x, y, order, tiles, weights, step;  // x: output of tiles_prepare.comp
  uint64_t first, second;                      // weights: of gate and up, or of down alone
  uint width, outputs;                         // of a row of x, and of y
  uint expert_rows, all_rows;                  // rows of the weight: of one expert, and of all
  uint scales_before, top_k, domain, unused;
  uint64_t biases;  // [experts, expert_rows]
  float alpha, limit;
};

#ifdef GATE_UP
const bool kPairs = true;
#else
const bool kPairs = false;
#endif
uint begin, count, expert, column0;
Weight weight, second_weight;

uint entry(uint m) { return begin + min(m, count - 1); }
uint source(uint m) {
#ifdef GATE_UP
  return tiles == 0 ? entry(m) : Words(order).at[entry(m)] / top_k;
#else
  return entry(m);
#endif
}
#ifdef COOPERATIVE
uint64_t a_row(uint m) { return x + uint64_t(source(m)) * width * 2; }
float row_scale(uint m) { return Floats(x - scales_before).at[source(m)]; }
#else
uint64_t a_row(uint m) { return x + uint64_t(source(m)) * width * 4; }
float row_scale(uint m) { return 1.0; }
#endif

void find_b_row(uint n);
void finish(uint m, uint n, vec4 v, vec4 w);
#include "tiles.glsl"

void find_b_row(uint n) {
  uint at = kPairs ? column0 + n / 32 * 16 + n % 16 : column0 + n;
  uint64_t row = uint64_t(expert) * expert_rows + min(at, outputs - 1);
  bool up = kPairs && n % 32 >= 16;
  b_data = (up ? second_weight.data : weight.data) + row * weight.row_bytes;
  b_scale = (up ? second_weight.scales : weight.scales) + row * weight.groups * scale_bytes(weight.dtype);
  b_offset = (up ? second_weight.offsets : weight.offsets) + row * weight.groups * 2;
}

void put(uint64_t to, uint n, vec4 v) {
  if (outputs % 4 == 0) {
    if (n < outputs) Float4s(to).at[0] = v;
    return;
  }
  for (uint i = 0; i < 4 && n + i < outputs; ++i) Floats(to).at[i] = v[i];
}

// The biases of rows n .. n + 3 of the expert's weight, or with `second` of its second half.
vec4 four_biases(uint n, bool second) {
  vec4 v;
  for (uint i = 0; i < 4; ++i) {
    uint at = (second ? outputs : 0) + min(n + i, outputs - 1);
    v[i] = plain_at(biases + uint64_t(expert) * expert_rows * (kBiasType == F32 ? 4 : 2), kBiasType, at);
  }
  return v;
}

void finish(uint m, uint n, vec4 v, vec4 w) {
  if (m >= count) return;
  n += column0;
  float scale = row_scale(m);
#ifdef GATE_UP
  uint64_t to = y + (uint64_t(entry(m)) * outputs + n) * 4;
  v *= scale;
  w *= scale;
  if (kBiasType != 0) {
    v += four_biases(n, false);
    w += four_biases(n, true);
  }
  put(to, n, vec4(activated(kClamped, alpha, limit, v.x, w.x), activated(kClamped, alpha, limit, v.y, w.y),
                  activated(kClamped, alpha, limit, v.z, w.z), activated(kClamped, alpha, limit, v.w, w.w)));
#else
  uint at = tiles == 0 ? entry(m) : Words(order).at[entry(m)];
  float weight_of_row = tiles != 0 ? Floats(weights).at[at] : 1.0;
  uint64_t to = y + (uint64_t(at) * outputs + n) * 4;
  if (kBiasType != 0) {
    put(to, n, weight_of_row * fma(vec4(scale), v, four_biases(n, false)));
  } else {
    put(to, n, scale * weight_of_row * v);
  }
#endif
}

void main() {
  if (tiles == 0) {
    uint rows = step_rows(step, domain);
    expert = 0;
    begin = gl_WorkGroupID.y * kBM;
    if (begin >= rows) return;
    count = min(kBM, rows - begin);
  } else {
    if (gl_WorkGroupID.y >= Words(tiles).at[0]) return;
    uvec4 tile = Word4s(tiles + 16).at[gl_WorkGroupID.y];
    expert = tile.x;
    begin = tile.y;
    count = tile.z;
  }
  column0 = gl_WorkGroupID.x * (kPairs ? kBN / 2 : kBN);
  weight = weight_of(first, all_rows, width, kForm);
  second_weight = weight;
#ifdef GATE_UP
  if (tiles == 0) {
    second_weight = weight_of(second, all_rows, width, kForm);
  } else {  // the rows of up follow those of gate
    second_weight.data += uint64_t(outputs) * weight.row_bytes;
    second_weight.scales += uint64_t(outputs) * weight.groups * scale_bytes(weight.dtype);
    second_weight.offsets += uint64_t(outputs) * weight.groups * 2;
  }
#endif
  multiply_tile(kForm & 0xff, weight, width);
}
