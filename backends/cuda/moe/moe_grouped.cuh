// SPDX-License-Identifier: Apache-2.0
// Kernels of MOE for many rows on Hopper (grouped.cuh). The pairs of a row and an expert are sorted by expert; each
// expert's pairs begin at a multiple of 8. The shared expert is treated as a last expert that has all rows.
//
//   sort_tiles   places of pairs, and the tiles of all experts
//   gather       x as panels, in sorted order
//   route_few    all of that for few rows, with the router (moe_route.cuh)
//   gate_up      h = silu(gate) * up, as panels
//   down         each expert's results for its pairs, in bf16
//   combine      y, in order of k (moe_combine.cuh)
//
// With 4-bit experts and few rows, gate_up and down are those of moe_quads.cu; route_quads gives them the rows as
// integers and the router's choice.
#pragma once

#include "common/few_rows.cuh"
#include "common/matrix.cuh"
#include "grouped/grouped.cuh"
#include "moe_grouped.h"
#include "moe_quads.h"

namespace gpu {

constexpr uint32_t kSortThreads = 1024, kMostSorted = 1024, kMostSlots = 33;

struct GroupedMixture {
  Mixture m;
  uint32_t* counts;      // [experts]: of pairs, zero between steps; only of route_few
  uint32_t* rank;        // [rows, top_k]: number of a pair among those of its expert
  uint32_t* begins;      // [experts + 1]: the first group of each expert, then of the shared one
  uint32_t* places;      // [rows, slots]: the sorted rows of a row's copies
  uint4* tiles;          // expert (experts: the shared one), first group, rows
  uint32_t* tile_count;  // [1 + kMostTileGroups]: tiles; tiles of 1, 2, ... groups or more
  uint8_t* x;            // panels [spans of hidden][groups]
  uint8_t* h;            // panels [spans of width][groups]
  uint16_t* pairs;       // bf16 [8 * groups, hidden]; without quads in the place of x
  uint32_t groups, most_rows;
  Quads quads;    // in place of tiles, x and h
  uint32_t room;  // groups that every expert has; 0: as many as it needs
  NextRows next;  // what the projection behind the mixture reads

  __device__ uint32_t slots() const { return m.top_k + (m.shared_width != 0 ? 1 : 0); }
};

// The streamed weights of one kernel: of the routed experts and of the shared one.
struct GateUpWeights {
  StreamedWeight gate_up, shared_gate, shared_up;
};
struct DownWeights {
  StreamedWeight down, shared_down;
};
constexpr uint32_t kRouted = 1, kShared = 2;

// `n` rows in tiles of about equal size.
struct TileSplit {
  uint32_t tiles, groups, last;  // groups of 8 rows in each but the last, and in the last

  __device__ TileSplit(uint32_t n, uint32_t most_rows) {
    const uint32_t all = (n + 7) / 8;
    groups = last = all, tiles = all != 0 ? 1 : 0;
    if (all * 8 <= most_rows) return;
    const uint32_t least = (all * 8 + most_rows - 1) / most_rows;
    groups = least == 0 ? 0 : (all + least - 1) / least;
    tiles = least == 0 ? 0 : (all + groups - 1) / groups;
    last = least == 0 ? 0 : all - (tiles - 1) * groups;
  }
};

// By one warp: begins [experts] = where each expert's groups begin; returns the number of groups.
__device__ inline uint32_t sum_groups(const uint32_t* counts, uint32_t* begins, uint32_t experts) {
  uint32_t begin = 0;
  for (uint32_t first = 0; first < experts; first += 32) {
    const uint32_t e = first + threadIdx.x, groups = e < experts ? (counts[e] + 7) / 8 : 0;
    uint32_t sum = groups;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const uint32_t a = __shfl_up_sync(kAll, sum, d);
      if (threadIdx.x >= static_cast<uint32_t>(d)) sum += a;
    }
    if (e < experts) begins[e] = begin + sum - groups;
    begin += __shfl_sync(kAll, sum, 31);
  }
  return begin;
}

__device__ inline uint32_t expert_of(const GroupedMixture& p, uint32_t pair) {
  return min(static_cast<uint32_t>(p.m.ids[pair]), p.m.experts - 1);
}
// Where a pair is in sorted order.
__device__ inline uint32_t sorted_row(const GroupedMixture& p, uint32_t pair) {
  return p.begins[expert_of(p, pair)] * 8 + p.rank[pair];
}

// By a block: ranks of all pairs, and counts [experts], in shared memory and zero before. The order of an expert's
// pairs may differ from run to run, their results do not.
__device__ inline void count_pairs(const GroupedMixture& p, uint32_t pairs, uint32_t* counts) {
  constexpr uint32_t kAtOnce = 8;  // loads that are under way together
  for (uint32_t first = threadIdx.x; first < pairs; first += kSortThreads * kAtOnce) {
    uint32_t expert[kAtOnce];
#pragma unroll
    for (uint32_t j = 0; j < kAtOnce; ++j) expert[j] = expert_of(p, min(first + j * kSortThreads, pairs - 1));
#pragma unroll
    for (uint32_t j = 0; j < kAtOnce; ++j) {
      const uint32_t i = first + j * kSortThreads;
      if (i < pairs) p.rank[i] = atomicAdd(counts + expert[j], 1u);
    }
  }
}

// Writes an expert's tiles of `n` rows to the next places of their size.
__device__ inline void list_tiles(const GroupedMixture& p, uint32_t expert, uint32_t n, uint32_t begin,
                                  uint32_t* places) {
  const TileSplit split(n, p.most_rows);
  if (split.tiles == 0) return;
  const uint32_t at = atomicAdd(places + split.groups, split.tiles - 1), last = split.tiles - 1;
  for (uint32_t i = 0; i < last; ++i) {
    p.tiles[at + i] = make_uint4(expert, begin + i * split.groups, split.groups * 8, 0);
  }
  p.tiles[atomicAdd(places + split.last, 1)] =
      make_uint4(expert, begin + last * split.groups, n - last * split.groups * 8, 0);
}

// By a block: the tiles by falling size, from counts and begins [experts + 1] and sizes [kMostTileGroups + 1], which
// must be zero, all in shared memory.
__device__ inline void put_tiles(const GroupedMixture& p, const uint32_t* counts, const uint32_t* begins,
                                 uint32_t* sizes) {
  for (uint32_t e = threadIdx.x; e <= p.m.experts; e += blockDim.x) {
    const TileSplit split(counts[e], p.most_rows);
    if (split.tiles == 0) continue;
    atomicAdd(sizes + split.groups, split.tiles - 1);
    atomicAdd(sizes + split.last, 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t tiles = 0;
    for (uint32_t g = kMostTileGroups; g > 0; --g) {
      const uint32_t n = sizes[g];
      sizes[g] = tiles;
      tiles += n;
      p.tile_count[g] = tiles;
    }
    p.tile_count[0] = tiles;
  }
  __syncthreads();
  for (uint32_t e = threadIdx.x; e <= p.m.experts; e += blockDim.x) list_tiles(p, e, counts[e], begins[e], sizes);
}

// One block: ranks of pairs, where each expert's pairs begin, and the tiles.
static __global__ void __launch_bounds__(kSortThreads)
    sort_tiles(const __grid_constant__ GroupedMixture p, const swy_step* step) {
  __shared__ uint32_t counts[kMostSorted + 1], begins[kMostSorted + 1], sizes[kMostTileGroups + 1];
  depend();
  release_next();
  const uint32_t experts = p.m.experts;
  const uint32_t rows = step_rows(step, p.m.domain);
  for (uint32_t e = threadIdx.x; e < experts; e += kSortThreads) counts[e] = 0;
  if (threadIdx.x == 0) counts[experts] = p.m.shared_width != 0 ? rows : 0;
  if (threadIdx.x <= kMostTileGroups) sizes[threadIdx.x] = 0;
  __syncthreads();
  count_pairs(p, rows * p.m.top_k, counts);
  __syncthreads();
  if (threadIdx.x < 32) {
    const uint32_t groups = sum_groups(counts, begins, experts);
    if (threadIdx.x == 0) begins[experts] = groups;
  }
  __syncthreads();
  for (uint32_t e = threadIdx.x; e <= experts; e += kSortThreads) p.begins[e] = begins[e];
  put_tiles(p, counts, begins, sizes);
}

// blockIdx.x: row. A row's copies for its experts, and the shared expert's factor.
static __global__ void __launch_bounds__(256) gather(const __grid_constant__ GroupedMixture p, const swy_step* step) {
  __shared__ uint32_t to[kMostSlots];
  __shared__ float scratch[32];
  depend();
  release_next();
  const uint32_t row = blockIdx.x;
  if (row >= step_rows(step, p.m.domain)) return;
  const float* x = p.m.x + uint64_t{row} * p.m.hidden;
  const uint32_t pieces = (p.m.hidden + kSpan - 1) / kSpan * 16, slots = p.slots();
  if (threadIdx.x < slots) {
    to[threadIdx.x] =
        threadIdx.x < p.m.top_k ? sorted_row(p, row * p.m.top_k + threadIdx.x) : p.begins[p.m.experts] * 8 + row;
    p.places[row * slots + threadIdx.x] = to[threadIdx.x];
  }
  float sum = 0;
  if (p.m.shared_width != 0) {
    for (uint32_t k = threadIdx.x; k < p.m.hidden; k += blockDim.x)
      sum = fmaf(x[k], weight_at(p.m.shared_mix, 0, k), sum);
  }
  sum = block_sum(sum, scratch);  // and `to` has been written
  if (p.m.shared_width != 0 && threadIdx.x == 0) p.m.shared_p[row] = sigmoid(sum);
  for (uint32_t i = threadIdx.x; i < pieces; i += blockDim.x) {
    const uint32_t span = i / 16, piece = i % 16;
    const uint4 v =
        panel_piece(piece, [&](uint32_t in) { return span * kSpan + in < p.m.hidden ? x[span * kSpan + in] : 0.0f; });
    for (uint32_t k = 0; k < slots; ++k) {
      const uint64_t panel = (uint64_t{span} * p.groups + to[k] / 8) * kPanelBytes;
      *reinterpret_cast<uint4*>(p.x + panel + panel_piece_offset(to[k], piece)) = v;
    }
  }
}

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
