// SPDX-License-Identifier: Apache-2.0
// The products of LINEAR and its fused forms for many rows with activations as bytes, on cards without wgmma
// (byte_tiles.cuh).
#pragma once

#include "grouped/byte_tiles.cuh"

namespace gpu {

struct ByteTileLinear {
  const uint8_t* x;  // panels
  const float* residual;
  Weight w[SWY_LINEAR_MAX_WEIGHTS];
  float* y[SWY_LINEAR_MAX_WEIGHTS];
  uint32_t first[SWY_LINEAR_MAX_WEIGHTS + 1];  // tile of 256 rows of a weight
  uint32_t count, spans, groups;               // groups: of eight rows of activations
  swy_rows domain;
  ByteScales scales;
};

struct LinearTiles {
  static constexpr bool kHalves = false;
  static constexpr uint32_t kStep = 64;
  const ByteTileLinear& p;
  const swy_step* step;
  uint32_t per_tile;  // rows of activations

  __device__ static uint32_t place(uint32_t slot) { return four_of_slot(slot); }
  __device__ uint32_t rows() const { return step_rows(step, p.domain); }
  __device__ uint32_t total() const { return p.first[p.count] * ((rows() + per_tile - 1) / per_tile); }
  __device__ uint64_t span_stride() const { return uint64_t{p.groups} * kBytePanel; }
  __device__ ByteTile tile(uint32_t i) const {
    const uint32_t steps = p.first[p.count], n = i / steps, m = i - n * steps;
    ByteTile t;
    t.of = 0;
    while (t.of + 1 < p.count && m >= p.first[t.of + 1]) ++t.of;
    t.column = (m - p.first[t.of]) * kTileRowsOfWeight;
    t.low = {&p.w[t.of], t.column, p.w[t.of].rows - t.column - 1};
    t.high = t.low;
    t.first_row = n * per_tile, t.rows = min(rows() - t.first_row, per_tile);
    t.groups = (t.rows + 7) / 8, t.spans = p.spans;
    t.x = p.x + uint64_t{t.first_row} * kSpan;
    return t;
  }
  __device__ const ByteScales& scales() const { return p.scales; }
  // What is added is loaded for several rows before any is stored, since a store may be to what a later load reads.
  template <int NT>
  __device__ void store(const ByteTile& tile, const ByteTileSums<NT>& sums) const {
    const uint32_t column = tile.column + column_of_fours(), width = p.w[tile.of].rows;
    const uint32_t first = threadIdx.x % 4 * 2;
    if (column >= width) return;
    const uint64_t at = uint64_t{tile.first_row + first} * width + column;
#pragma unroll
    for (int n = 0; n < NT; n += 2) {
      float4 old[4] = {};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t row = (n + i / 2) * 8 + i % 2;
        if (p.residual == nullptr || first + row >= tile.rows) continue;
        old[i] = *reinterpret_cast<const float4*>(p.residual + at + uint64_t{row} * width);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t row = (n + i / 2) * 8 + i % 2;
        if (first + row >= tile.rows) continue;
        const float4 v = sums.four(n + i / 2, i % 2);
        *reinterpret_cast<float4*>(p.y[tile.of] + at + uint64_t{row} * width) =
            make_float4(v.x + old[i].x, v.y + old[i].y, v.z + old[i].z, v.w + old[i].w);
      }
    }
  }
};

static __global__ void __launch_bounds__(kByteTileThreads, kByteTileBlocks)
    linear_byte_tiles(const __grid_constant__ ByteTileLinear p, const __grid_constant__ ByteTileShape shape,
                      const swy_step* step) {
  extern __shared__ __align__(128) char memory_of_tiles[];
  depend();
  release_next();
  product_of_byte_tiles(LinearTiles{p, step, shape.rows}, shape, memory_of_tiles);
}

}  // namespace gpu
