// SPDX-License-Identifier: Apache-2.0
// Kernels of MOE for many rows on Hopper (grouped.cuh). The pairs of a row and an expert are sorted by expert; each
// expert's pairs begin at a multiple of 8. The shared expert is treated as a last expert that has all rows.
//
//   sort_tiles   places of pairs, and the tiles of all experts (moe_sort.cuh)
//   gather       x as panels, in sorted order (moe_sort.cuh)
//   route_few    all of that for few rows, with the router (moe_route.cuh)
//   gate_up      h = silu(gate) * up, as panels
//   down         each expert's results for its pairs, in bf16
//   combine      y, in order of k (moe_combine.cuh)
//
// With 4-bit experts and few rows, gate_up and down are those of moe_quads.cu; route_quads gives them the rows as
// integers and the router's choice.
#pragma once

#include "common/matrix.cuh"
#include "grouped/grouped.cuh"
#include "moe_sort.cuh"

namespace gpu {

// The streamed weights of one kernel: of the routed experts and of the shared one.
struct GateUpWeights {
  StreamedWeight gate_up, shared_gate, shared_up;
};
struct DownWeights {
  StreamedWeight down, shared_down;
};
constexpr uint32_t kRouted = 1, kShared = 2;

#ifdef SWY_HOPPER

// i / steps, which usually is a power of two.
__device__ inline uint32_t over(uint32_t i, uint32_t steps) {
  return __popc(steps) == 1 ? i >> (__ffs(static_cast<int>(steps)) - 1) : i / steps;
}

// Tiles have up to 64 rows of activations, or for kBlocks 2 up to 128.
template <int kBlocksOf>
struct TilesOfMixture {
  static constexpr int kRows = 0, kBlocks = kBlocksOf, kMostRows = 64 * kBlocks, kStep = 8 * kBlocks;
};

// A tile with gate in the first half of a kernel's rows and up in the second.
template <int kBlocks>
struct GateUpWork : TilesOfMixture<kBlocks> {
  static constexpr RowOrder kOrder = RowOrder::pairs;
  static constexpr bool kReadOnce = true;
  static constexpr Waits kWaits = Waits::first;  // for the list of tiles
  const GroupedMixture& p;
  const GateUpWeights& w;
  uint32_t parts, steps;  // steps: tiles of 128 of the width

  __device__ uint32_t total() const { return *p.tile_count * steps; }
  // Number of tiles with `groups` groups or more, which come first.
  __device__ uint32_t total(uint32_t groups) const { return p.tile_count[groups] * steps; }
  __device__ uint4 entry(uint32_t i) const { return __ldg(p.tiles + over(i, steps)); }
  __device__ GroupedTile tile(uint32_t i, uint4 of) const {
    const bool shared = of.x == p.m.experts;
    const uint32_t first = (i - over(i, steps) * steps) * kBoxRows, width = shared ? p.m.shared_width : p.m.width;
    GroupedTile t;
    t.w0 = shared ? &w.shared_gate : &w.gate_up;
    t.w1 = shared ? &w.shared_up : &w.gate_up;
    t.row0 = shared ? first : of.x * 2 * width + first;
    t.row1 = shared ? first : t.row0 + width;
    t.x = p.x + uint64_t{of.y} * kPanelBytes;
    t.span_stride = uint64_t{p.groups} * kPanelBytes;
    t.groups = first < width && (parts & (shared ? kShared : kRouted)) != 0 ? (of.z + 7) / 8 : 0;
    t.begin = 0, t.end = (p.m.hidden + kSpan - 1) / kSpan;
    t.what = make_uint4(of.y, of.z, first, width);
    return t;
  }
  // Element `column` of h of a tile, from its products.
  __device__ float activate(const GroupedTile& tile, uint32_t column, float gate, float up) const {
    const Bias& bias = p.m.gate_up_bias;
    if (bias.data != nullptr && tile.w0 == &w.gate_up) {
      gate += bias_at(bias, tile.row0 + column), up += bias_at(bias, tile.row1 + column);
    }
    return p.m.act.clamped ? activated(p.m.act, gate, up) : fast_silu(gate) * up;
  }
  // The tile's 128 columns of h are one span: consecutive panels.
  template <int N>
  __device__ void store(const GroupedPipe& pipe, const GroupedTile& tile, float (&acc)[kBlocks][N / 2]) const {
    if constexpr (N <= kFewRows && kBlocks == 1) {
      store_few<N>(tile, acc);
      return;
    }
    if (threadIdx.x == 0) copies_out_read();
    named_barrier(1, kConsumers<kBlocks>);
#pragma unroll
    for (uint32_t h = 0; h < kBlocks; ++h) {
      const uint32_t column = tile_row<kBlocks, kOrder>(0, h);
      const bool in = tile.what.z + column < tile.what.w;
#pragma unroll
      for (int n = 0; n < N / 8; ++n) {
        float v[2];
#pragma unroll
        for (uint32_t e = 0; e < 2; ++e) {
          const float gate = acc[0][4 * n + 2 * h + e];
          const float up = kBlocks == 1 ? acc[0][4 * n + 2 + e] : acc[kBlocks - 1][4 * n + 2 * h + e];
          v[e] = in ? activate(tile, column, gate, up) : 0.0f;
        }
        put_two(pipe.memory + pipe.staging + n * kPanelBytes, column, v);
      }
    }
    stores_visible_to_copies();
    named_barrier(1, kConsumers<kBlocks>);
    if (threadIdx.x == 0) {
      copy_out(p.h + (uint64_t{tile.what.z / kSpan} * p.groups + tile.what.x) * kPanelBytes, pipe.base + pipe.staging,
               tile.groups * kPanelBytes);
    }
  }
  // The same for few rows, each warp without the others.
  template <int N>
  __device__ void store_few(const GroupedTile& tile, const float (&acc)[kBlocks][N / 2]) const {
    const uint32_t column = tile_row<kBlocks, kOrder>(0, 0);
    const bool in = tile.what.z + column < tile.what.w;
    uint8_t* to = p.h + (uint64_t{tile.what.z / kSpan} * p.groups + tile.what.x) * kPanelBytes;
#pragma unroll
    for (int n = 0; n < N / 8; ++n) {
      float v[2];
#pragma unroll
      for (uint32_t e = 0; e < 2; ++e) {
        v[e] = in ? activate(tile, column, acc[0][4 * n + e], acc[0][4 * n + 2 + e]) : 0.0f;
      }
      put_two(reinterpret_cast<char*>(to) + n * kPanelBytes, column, v);
    }
  }
  // Columns g and g + 4 share a word: the lower lane takes the first row of both, the other the second.
  static __device__ void put_two(char* panel, uint32_t column, const float (&v)[2]) {
    const uint32_t g = threadIdx.x % 32 / 4, row = threadIdx.x % 4 * 2 + g / 4;
    const float other = __shfl_xor_sync(kAll, g < 4 ? v[1] : v[0], 16);
    const __nv_bfloat162 word = g < 4 ? __floats2bfloat162_rn(v[0], other) : __floats2bfloat162_rn(other, v[1]);
    *reinterpret_cast<__nv_bfloat162*>(panel + panel_offset(0, row, column & ~4u)) = word;
  }
  __device__ void finish() const {
    if (threadIdx.x == 0) copies_out_done();
  }
};

template <int kBlocks>
struct DownWork : TilesOfMixture<kBlocks> {
  static constexpr RowOrder kOrder = RowOrder::neighbours;
  static constexpr bool kReadOnce = true;
  // The list of tiles is older than the previous kernel. Pairs are written over x, which that kernel reads: they depend
  // on activations that are requested after the wait.
  static constexpr Waits kWaits = Waits::ahead;
  const GroupedMixture& p;
  const DownWeights& w;
  uint32_t parts, steps;  // steps: tiles of 256 of hidden

  __device__ uint32_t total() const { return *p.tile_count * steps; }
  // Number of tiles with `groups` groups or more, which come first.
  __device__ uint32_t total(uint32_t groups) const { return p.tile_count[groups] * steps; }
  __device__ uint4 entry(uint32_t i) const { return __ldg(p.tiles + over(i, steps)); }
  __device__ GroupedTile tile(uint32_t i, uint4 of) const {
    const bool shared = of.x == p.m.experts;
    const uint32_t first = (i - over(i, steps) * steps) * kTileRowsOfWeight;
    GroupedTile t;
    t.w0 = t.w1 = shared ? &w.shared_down : &w.down;
    t.row0 = (shared ? 0 : of.x * p.m.hidden) + first;
    t.row1 = t.row0 + kBoxRows;
    t.x = p.h + uint64_t{of.y} * kPanelBytes;
    t.span_stride = uint64_t{p.groups} * kPanelBytes;
    t.groups = (parts & (shared ? kShared : kRouted)) != 0 ? (of.z + 7) / 8 : 0;
    t.begin = 0, t.end = ((shared ? p.m.shared_width : p.m.width) + kSpan - 1) / kSpan;
    t.what = make_uint4(of.y, of.z, first, 0);
    return t;
  }
  // Adds the expert's bias to a tile's products.
  template <int N>
  __device__ void add_bias(const GroupedTile& tile, float (&acc)[kBlocks][N / 2]) const {
    if (p.m.down_bias.data == nullptr || tile.w0 != &w.down) return;
#pragma unroll
    for (uint32_t i = 0; i < 2 * kBlocks; ++i) {
      const uint32_t row = tile_row<kBlocks, kOrder>(i / 2, i % 2);
      const float bias = tile.what.z + row < p.m.hidden ? bias_at(p.m.down_bias, tile.row0 + row) : 0.0f;
#pragma unroll
      for (int n = 0; n < N / 8; ++n) acc[i / 2][4 * n + i % 2 * 2] += bias, acc[i / 2][4 * n + i % 2 * 2 + 1] += bias;
    }
  }
  template <int N>
  __device__ void store(const GroupedPipe&, const GroupedTile& tile, float (&acc)[kBlocks][N / 2]) const {
    add_bias<N>(tile, acc);
    const uint32_t g = threadIdx.x % 32 / 4;
    const uint32_t column = tile.what.z + (threadIdx.x / 32 * 16 + threadIdx.x % 4 * 4) * kBlocks;
#pragma unroll
    for (int n = 0; n < N / 8; ++n) {
      uint32_t v[2 * kBlocks];
#pragma unroll
      for (int i = 0; i < 2 * kBlocks; ++i) {
        const float(&from)[N / 2] = acc[i / 2];
        const __nv_bfloat162 two = __floats2bfloat162_rn(from[4 * n + i % 2 * 2], from[4 * n + i % 2 * 2 + 1]);
        v[i] = transpose(*reinterpret_cast<const uint32_t*>(&two));
      }
      const uint32_t row = n * 8 + g;
      if (row >= tile.what.y || column >= p.m.hidden) continue;
      uint16_t* to = p.pairs + (uint64_t{tile.what.x} * 8 + row) * p.m.hidden + column;
      if constexpr (kBlocks == 1) {
        *reinterpret_cast<uint2*>(to) = make_uint2(v[0], v[1]);
      } else {
        *reinterpret_cast<uint4*>(to) = make_uint4(v[0], v[1], v[2], v[3]);
      }
    }
  }
  __device__ void finish() const {}
};

#endif

template <swy_dtype kDtype, int kBlocks>
__global__ void __launch_bounds__(kGroupedThreads<kBlocks>, 1)
    gate_up_grouped(const __grid_constant__ GroupedMixture p, const __grid_constant__ GateUpWeights w, uint32_t parts,
                    uint32_t steps, const GroupedShape shape) {
#ifdef SWY_HOPPER
  extern __shared__ uint4 shared[];
  grouped_product<kDtype>(GateUpWork<kBlocks>{{}, p, w, parts, steps}, shape, reinterpret_cast<char*>(shared));
#endif
}

template <swy_dtype kDtype, int kBlocks>
__global__ void __launch_bounds__(kGroupedThreads<kBlocks>, 1)
    down_grouped(const __grid_constant__ GroupedMixture p, const __grid_constant__ DownWeights w, uint32_t parts,
                 uint32_t steps, const GroupedShape shape) {
#ifdef SWY_HOPPER
  extern __shared__ uint4 shared[];
  grouped_product<kDtype>(DownWork<kBlocks>{{}, p, w, parts, steps}, shape, reinterpret_cast<char*>(shared));
#endif
}

}  // namespace gpu
