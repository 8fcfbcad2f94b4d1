// SPDX-License-Identifier: Apache-2.0
// What the kernels of MOE for many rows share (moe_grouped.cuh), and the two that run first: they sort the pairs of a
// row and an expert by expert, and copy the rows in that order.
#pragma once

#include "common/few_rows.cuh"
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

// The sum of the lower lanes' numbers.
__device__ inline uint32_t sum_before(uint32_t own) {
  uint32_t sum = own;
#pragma unroll
  for (uint32_t d = 1; d < 32; d *= 2) {
    const uint32_t a = __shfl_up_sync(kAll, sum, d);
    if (threadIdx.x % 32 >= d) sum += a;
  }
  return sum - own;
}

// By a block: begins [experts + 1] = where each expert's groups begin, and where the last one's end.
__device__ inline void sum_groups(const uint32_t* counts, uint32_t* begins, uint32_t experts) {
  static_assert(kMostSorted <= kSortThreads && kSortThreads == 32 * 32);
  __shared__ uint32_t totals[32];  // of the warps
  const uint32_t e = threadIdx.x, lane = e % 32, warp = e / 32, groups = e < experts ? (counts[e] + 7) / 8 : 0;
  const uint32_t sum = sum_before(groups);
  if (lane == 31) totals[warp] = sum + groups;
  __syncthreads();
  const uint32_t begin = __reduce_add_sync(kAll, lane < warp ? totals[lane] : 0) + sum;
  if (e < experts) begins[e] = begin;
  if (e + 1 == experts) begins[experts] = begin + groups;
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
  if (threadIdx.x < 32) {  // a lane for each size, large ones first
    const uint32_t size = kMostTileGroups - threadIdx.x, n = threadIdx.x < kMostTileGroups ? sizes[size] : 0;
    const uint32_t before = sum_before(n);
    if (threadIdx.x < kMostTileGroups) sizes[size] = before, p.tile_count[size] = before + n;
    if (threadIdx.x == kMostTileGroups) p.tile_count[0] = before;
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
  sum_groups(counts, begins, experts);
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

}  // namespace gpu
