// SPDX-License-Identifier: Apache-2.0
// Rows of activations as bytes for products in MOE with many rows (moe_bytes.cuh, moe_byte_tiles.cu):
//
//   gather_bytes   x as panels of bytes, in sorted order, with scales
//   h_bytes        h as panels of bytes, with scales. A row is spread over blocks of the product before, and has one
//                  scale
#pragma once

#include "grouped/byte_rows.cuh"
#include "moe_grouped.cuh"

namespace gpu {

constexpr uint32_t kSortedRows = 4;  // of a warp of h_bytes

struct ByteMixture {
  GroupedMixture g;  // x and h: panels of bytes
  ByteScales x_scales, h_scales;
  uint16_t* h;  // bf16 [rows of groups][h_width]; of eight columns first the even ones, then the odd ones
  uint32_t h_width;
};

// Layout of the workspace after place_grouped: h, and scales.
inline void place_byte_rows(ByteMixture& b, Arena& arena, uint32_t hidden, uint32_t width) {
  const uint64_t rows = uint64_t{b.g.groups} * 8;
  b.h_width = (width + kSpan - 1) / kSpan * kSpan;
  b.h = arena.take<uint16_t>(rows * b.h_width);
  b.x_scales = take_scales(arena, rows, hidden);
  b.h_scales = take_scales(arena, rows, width);
}

// A row of x, for all its places. kNormed: its norm, whose factor does not change the bytes.
template <bool kNormed>
struct GatheredRow {
  const ByteMixture& b;
  const InputNorm& norm;
  const float* x;
  const uint32_t* to;  // [slots]
  uint32_t width, slots;
  static constexpr int kSums = kNormed ? 2 : 1;
  static constexpr bool kAhead = false;
  float sums[kSums] = {};  // of the shared expert's factor; of squares
  bool scaled = false;

  __device__ void load(uint32_t k, float (&v)[8]) {
    load_floats(x + k, v);
    float of[8];
    if constexpr (kNormed) {
      load_plain(norm.weight, k, of);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (!scaled) sums[1] = fmaf(v[i], v[i], sums[1]);
        v[i] *= norm.bias + of[i];
      }
    }
    if (!mixes() || scaled) return;
    load_plain(b.g.m.shared_mix, k, of);
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[0] = fmaf(v[i], of[i], sums[0]);
  }
  // The norm's.
  __device__ float factor() const {
    if constexpr (kNormed) return rsqrtf(sums[1] / static_cast<float>(width) + norm.eps);
    return 1;
  }
  // Whether `load` adds up the factor; quantized weights need another pass.
  __device__ bool mixes() const { return b.g.m.shared_width != 0 && is_plain(b.g.m.shared_mix); }
  __device__ void put_scale(float scale) {
    const float by = factor();
    for (uint32_t s = threadIdx.x; s < slots; s += kRowWarps * 32) b.x_scales.last[to[s]] = scale * by;
    scaled = true;
  }
  __device__ void put_change(uint32_t stage, uint16_t change) const {
    for (uint32_t s = 0; s < slots; ++s) b.x_scales.changes[stage * b.x_scales.rows + to[s]] = change;
  }
  __device__ void put(uint32_t span, uint32_t piece, uint4 bytes) const {
    for (uint32_t s = 0; s < slots; ++s) {
      *reinterpret_cast<uint4*>(b.g.x + piece_in_panels(span, b.g.groups, to[s], piece)) = bytes;
    }
  }
};

// blockIdx.x: row. As gather.
template <bool kNormed>
__global__ void __launch_bounds__(kRowWarps * 32)
    gather_bytes(const __grid_constant__ ByteMixture b, const __grid_constant__ InputNorm norm, const swy_step* step) {
  __shared__ uint32_t to[kMostSlots];
  __shared__ RowMemory<kRowWarps> memory;
  const GroupedMixture& p = b.g;
  const uint32_t lane = threadIdx.x, row = blockIdx.x;
  depend();
  release_next();
  if (row >= step_rows(step, p.m.domain)) return;
  const uint32_t slots = p.slots();
  if (lane < slots) {  // read behind convert_row's barrier
    to[lane] = lane < p.m.top_k ? sorted_row(p, row * p.m.top_k + lane) : p.begins[p.m.experts] * 8 + row;
    p.places[row * slots + lane] = to[lane];
  }
  GatheredRow<kNormed> of{b, norm, p.m.x + uint64_t{row} * p.m.hidden, to, p.m.hidden, slots};
  convert_row<4>(of, memory);
  if (p.m.shared_width == 0 || lane >= 32) return;
  if (!kNormed && !of.mixes()) {
    float sum = 0;
    for (uint32_t k = lane; k < p.m.hidden; k += 32) sum = fmaf(of.x[k], weight_at(p.m.shared_mix, 0, k), sum);
    of.sums[0] = warp_sum(sum);
  }
  if (lane == 0) p.m.shared_p[row] = sigmoid(of.sums[0] * of.factor());
}

// A sorted row of h.
struct SortedRow {
  static constexpr uint32_t kHeld = 2;  // pieces of 256 elements
  static constexpr int kSums = 0;
  static constexpr bool kAhead = false;
  float sums[1];
  const ByteMixture& b;
  uint32_t row, width;
  uint4 held[kHeld];  // this lane's elements of the first ones

  __device__ void request() {
#pragma unroll
    for (uint32_t i = 0; i < kHeld; ++i) held[i] = eight_at(i * kByteColumns + threadIdx.x % 32 * 8);
  }
  __device__ uint4 eight_at(uint32_t k) const {
    if (k >= width) return make_uint4(0, 0, 0, 0);
    return *reinterpret_cast<const uint4*>(b.h + uint64_t{row} * b.h_width + k);
  }
  __device__ void load(uint32_t k, float (&v)[8]) const {
    const uint4 q = k < kByteColumns ? held[0] : k < 2 * kByteColumns ? held[1] : eight_at(k);
    const uint32_t words[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i % 4 * 2 + i / 4] = i % 2 == 0 ? low_of(words[i / 2]) : high_of(words[i / 2]);
  }
  __device__ void put_scale(float scale) const {
    if (threadIdx.x % 32 == 0) b.h_scales.last[row] = scale;
  }
  __device__ void put_change(uint32_t stage, uint16_t change) const {
    b.h_scales.changes[stage * b.h_scales.rows + row] = change;
  }
  __device__ void put(uint32_t span, uint32_t piece, uint4 bytes) const {
    *reinterpret_cast<uint4*>(b.g.h + piece_in_panels(span, b.g.groups, row, piece)) = bytes;
  }
};

// A warp: sorted rows, whose loads are under way together. Those between an expert's rows and the next one's are any.
static __global__ void __launch_bounds__(kRowWarps * 32)
    h_bytes(const __grid_constant__ ByteMixture b, const swy_step* step) {
  __shared__ RowMemory<1> memory[kRowWarps];
  const GroupedMixture& p = b.g;
  const uint32_t warp = threadIdx.x / 32, first = (blockIdx.x * kRowWarps + warp) * kSortedRows;
  release_next();
  depend();
  const uint32_t routed = p.begins[p.m.experts] * 8;
  const uint32_t rows = routed + (p.m.shared_width != 0 ? step_rows(step, p.m.domain) : 0);
  if (first >= rows) return;
  const auto row = [&](uint32_t i) { return SortedRow{{}, b, i, i < routed ? p.m.width : p.m.shared_width, {}}; };
  SortedRow of[kSortedRows] = {row(first), row(first + 1), row(first + 2), row(first + 3)};
#pragma unroll
  for (uint32_t i = 0; i < kSortedRows; ++i) {
    if (first + i < rows) of[i].request();
  }
#pragma unroll
  for (uint32_t i = 0; i < kSortedRows; ++i) {
    if (first + i < rows) convert_row<SortedRow::kHeld>(of[i], memory[warp]);
  }
}

inline swy_status record_h_bytes(const Recording& r, const ByteMixture& b) {
  const uint32_t blocks = ceil_div(b.g.groups * 8, kRowWarps * kSortedRows);
  return launch(r, h_bytes, blocks, kRowWarps * 32, 0, b, r.list.step);
}

}  // namespace gpu
