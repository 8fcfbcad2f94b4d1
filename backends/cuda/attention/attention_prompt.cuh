// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels of ATTENTION for prompts: tiles of queries, copying keys and values to shared memory, and the
// running softmax (Dao 2023, "FlashAttention-2").
//
// The rows of a tile are all query heads of one KV head for some neighbouring rows of a sequence, so its keys and
// values are read once for all of them. Positions are processed in blocks of 64. Keys, values and queries lie in panels
// of 64 elements, each a tile of matrix.cuh [64 rows, 8 units]; in wgmma's terms, the rows of a panel are swizzled by
// 128 bytes.
#pragma once

#include "attention.cuh"
#include "common/matrix.cuh"
#include "common/parts.cuh"

namespace gpu {

constexpr uint32_t kPromptThreads = 256, kPositions = 64, kPanel = 64 * 128;  // positions of a block; bytes
constexpr uint32_t kTileQueries = 128;                                        // of an uncut tile
constexpr float kLog2E = 1.44269504088896f;

// Byte offset of a unit of 16 bytes.
__device__ inline uint32_t in_panels(uint32_t row, uint32_t unit) {
  return unit / 8 * kPanel + tile_at<8>(row, unit % 8);
}
__host__ __device__ constexpr uint32_t panels_bytes(uint32_t dim, uint32_t rows) { return rows * dim * 2; }

// A tile of queries: rows of a sequence, and their positions.
struct Tile {
  Part part;
  uint32_t position;  // of the first row
  uint32_t kv, per_row;
  __device__ uint32_t context() const { return position + part.rows; }
  __device__ uint32_t blocks() const { return (context() + kPositions - 1) / kPositions; }
  // The first position that one of the rows reads, and its block.
  __device__ uint32_t first_position(const Attention& a) const { return first_read(a, position + 1); }
  __device__ uint32_t first_block(const Attention& a) const { return first_position(a) / kPositions; }
  // Query m of the tile.
  __device__ uint32_t row(uint32_t m) const { return m / per_row; }
  __device__ bool there(uint32_t m) const { return row(m) < part.rows; }
  __device__ uint64_t head(const Attention& a, uint32_t m) const {
    return uint64_t{part.first + row(m)} * a.heads + kv * per_row + m % per_row;
  }
};

// Where the keys lie that one of kWarps warps copies: lane i has the address of the i-th of its positions of a block.
template <int kDim, uint32_t kWarps>
struct Pages {
  static constexpr uint32_t kUnits = kDim / 8, kRows = 32 / kUnits, kMine = kPositions / kWarps;  // rows at once
  const uint32_t* table;
  uint64_t place;                         // of the block that was requested last
  uint32_t warp, row, first, last, page;  // positions first to last are read; zeros stand for the others
  __device__ Pages(const Attention& a, const swy_step* step, const Tile& t, uint32_t warp_of_team, uint32_t block)
      : table(table_of(step, t.part.seq)), warp(warp_of_team), first(t.first_position(a)), last(t.context() - 1) {
    const uint32_t i = threadIdx.x % kMine;
    row = (i / kRows * kWarps + warp) * kRows + i % kRows;
    page = table[place_of(block) / step->page_size];
  }
  __device__ uint32_t place_of(uint32_t block) const { return max(min(block * kPositions + row, last), first); }
  // Finds the keys of a block, and reads the page table for the block `stride` further.
  __device__ void find(const Attention& a, const swy_step* step, uint32_t kv, uint32_t block, uint32_t stride) {
    const uint32_t size = step->page_size, position = place_of(block);
    place = ((uint64_t{page} * a.kv_heads + kv) * 2 * size + position % size) * kDim;
    page = table[place_of(block + stride) / size];
  }
  // Requests the keys, or the `values`, of the block given to find().
  __device__ void bring(const Attention& a, const swy_step* step, uint32_t block, bool values, char* to) const {
    const uint32_t lane = threadIdx.x % 32, unit = lane % kUnits;
    const uint16_t* base = static_cast<const uint16_t*>(a.pages) + (values ? step->page_size * kDim : 0) + unit * 8;
#pragma unroll
    for (uint32_t n = 0; n < kMine / kRows; ++n) {
      const uint64_t at = __shfl_sync(kAll, place, n * kRows + lane / kUnits);
      const uint32_t r = (n * kWarps + warp) * kRows + lane / kUnits, position = block * kPositions + r;
      copy_later(to + in_panels(r, unit), base + at, position >= first && position <= last);
    }
  }
};

// Requests the queries of a tile, [64, kDim] after [64, kDim].
template <int kDim>
__device__ inline void bring_queries(const Attention& a, const Tile& tile, uint32_t queries, char* to) {
  for (uint32_t i = threadIdx.x; i < queries * (kDim / 8); i += kPromptThreads) {
    const uint32_t q = i / (kDim / 8), u = i % (kDim / 8);
    const bool in = tile.there(q);
    const uint64_t at = in ? tile.head(a, q) * kDim + u * 8 : 0;
    copy_later(to + q / 64 * panels_bytes(kDim, 64) + in_panels(q % 64, u), static_cast<const uint16_t*>(a.ready) + at,
               in);
  }
}

// Gives positions after a query's own, and those before its window, the weight 0. first: of the block.
template <int kTiles>
__device__ inline void mask(float (&s)[kTiles][4], uint32_t first, const uint32_t (&limit)[2], uint32_t window) {
  // limit[0] is not the larger one; lanes may differ
  if (first + kTiles * 8 - 1 <= limit[0] && first + window > limit[1]) return;
  const uint32_t t = threadIdx.x % 4;
#pragma unroll
  for (uint32_t n = 0; n < kTiles; ++n) {
#pragma unroll
    for (uint32_t e = 0; e < 4; ++e) {
      const uint32_t at = first + n * 8 + 2 * t + e % 2;
      if (at > limit[e / 2] || at + window <= limit[e / 2]) s[n][e] = -INFINITY;
    }
  }
}

// A warp's running results: per thread two queries (g and g + 8), in the layout of products.
template <int kDim>
struct Running {
  float out[kDim / 8][4], top[2], sum[2];  // sum: of this thread's positions
};

template <int kDim>
__device__ inline void clear(Running<kDim>& r) {
#pragma unroll
  for (int i = 0; i < kDim / 2; ++i) r.out[i / 4][i % 4] = 0;
  r.top[0] = r.top[1] = -INFINITY, r.sum[0] = r.sum[1] = 0;
}
// Adds up the sums of four lanes, which share queries.
template <int kDim>
__device__ inline void sum_quads(Running<kDim>& r) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    r.sum[h] += __shfl_xor_sync(kAll, r.sum[h], 1);
    r.sum[h] += __shfl_xor_sync(kAll, r.sum[h], 2);
  }
}

// The last positions of queries m and m + 8; arbitrary for queries that do not exist.
__device__ inline void limits(const Tile& tile, uint32_t m, uint32_t (&limit)[2]) {
  limit[0] = tile.position + tile.row(m), limit[1] = tile.position + tile.row(m + 8);
}

// The threads that have queries meet.
__device__ inline void meet_queries() { asm volatile("bar.sync 1, %0;" ::"n"(kPromptThreads) : "memory"); }

// Turns one block's scores into weights. Weights are powers of two below `top`, which may be up to kSlack less than the
// largest score: only when it would be more, the earlier sums are scaled down.
constexpr float kSlack = 8;
template <int kDim, int kTiles>
__device__ inline void soften(float (&s)[kTiles][4], Running<kDim>& r) {
  float shrink[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float best = r.top[h];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) best = fmaxf(best, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
    best = fmaxf(best, __shfl_xor_sync(kAll, best, 1));
    best = fmaxf(best, __shfl_xor_sync(kAll, best, 2));
    if (best - r.top[h] <= kSlack) best = r.top[h];  // not if it was infinite
    const float base = best == -INFINITY ? 0.0f : best;
    shrink[h] = exp2_of(r.top[h] - base);
    r.top[h] = best;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      s[n][2 * h] = exp2_of(s[n][2 * h] - base), s[n][2 * h + 1] = exp2_of(s[n][2 * h + 1] - base);
      sum += s[n][2 * h] + s[n][2 * h + 1];
    }
    r.sum[h] = fmaf(r.sum[h], shrink[h], sum);
  }
  if (__all_sync(kAll, shrink[0] == 1 && shrink[1] == 1)) return;
#pragma unroll
  for (int n = 0; n < kDim / 8; ++n) {
    r.out[n][0] *= shrink[0], r.out[n][1] *= shrink[0];
    r.out[n][2] *= shrink[1], r.out[n][3] *= shrink[1];
  }
}

// The second team writes its results to shared memory, and the first one adds them to its own.
template <int kDim>
__device__ inline void join_teams(bool first, Running<kDim>& r, float* shared) {
  constexpr uint32_t kHeld = kDim / 2 + 4, kWarps = kPromptThreads / 32;  // floats of a thread
  float* mine = shared + threadIdx.x / 32 % (kWarps / 2) * kHeld * 32 + threadIdx.x % 32;
  if (!first) {
#pragma unroll
    for (uint32_t i = 0; i < kDim / 2; ++i) mine[i * 32] = r.out[i / 4][i % 4];
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) mine[(kDim / 2 + h) * 32] = r.top[h], mine[(kDim / 2 + 2 + h) * 32] = r.sum[h];
  }
  meet_queries();
  if (!first) return;
  float own[2], other[2];
#pragma unroll
  for (uint32_t h = 0; h < 2; ++h) {
    const float top = mine[(kDim / 2 + h) * 32], best = fmaxf(top, r.top[h]);
    own[h] = exp2_of(r.top[h] - best), other[h] = exp2_of(top - best);  // one team has the query's own position
    r.sum[h] = r.sum[h] * own[h] + mine[(kDim / 2 + 2 + h) * 32] * other[h];
    r.top[h] = best;
  }
#pragma unroll
  for (uint32_t i = 0; i < kDim / 2; ++i) {
    const uint32_t h = i % 4 / 2;
    r.out[i / 4][i % 4] = r.out[i / 4][i % 4] * own[h] + mine[i * 32] * other[h];
  }
}

// The weight of a head's sink, beside weights that are powers of two.
__device__ inline float prompt_sink(const Attention& a, uint32_t head, float top) {
  return a.sinks.data == nullptr ? 0.0f : exp2_of(bias_at(a.sinks, head) * kLog2E - top);
}

// Writes a thread's two queries, m and m + 8. Gates are loaded a quarter of a head at a time before any store, since a
// store holds up later loads.
template <int kDim>
__device__ inline void give(const Attention& a, const Tile& tile, uint32_t m, const Running<kDim>& r) {
  constexpr uint32_t kPart = kDim / 16;
  const uint32_t t = threadIdx.x % 4;
#pragma unroll
  for (uint32_t h = 0; h < 2; ++h) {
    if (!tile.there(m + 8 * h)) continue;
    const uint64_t head = tile.head(a, m + 8 * h);
    const uint32_t query_head = tile.kv * tile.per_row + (m + 8 * h) % tile.per_row;
    const float share = tile.part.active ? 1.0f / (r.sum[h] + prompt_sink(a, query_head, r.top[h])) : 0.0f;
    const float* from = a.q + head * 2 * kDim + kDim + 2 * t;
    float* y = a.y + head * kDim + 2 * t;
#pragma unroll
    for (uint32_t first = 0; first < kDim / 8; first += kPart) {
      float2 gate[kPart];
#pragma unroll
      for (uint32_t n = 0; n < kPart; ++n) {
        gate[n] = a.gated ? *reinterpret_cast<const float2*>(from + (first + n) * 8) : make_float2(0, 0);
      }
#pragma unroll
      for (uint32_t n = 0; n < kPart; ++n) {
        const float(&out)[4] = r.out[first + n];
        float2 v = make_float2(out[2 * h] * share, out[2 * h + 1] * share);
        if (!tile.part.active) v = make_float2(0, 0);
        if (a.gated) {
          v.x = __fdividef(v.x, 1.0f + __expf(-gate[n].x)), v.y = __fdividef(v.y, 1.0f + __expf(-gate[n].y));
        }
        *reinterpret_cast<float2*>(y + (first + n) * 8) = v;
      }
    }
  }
}

// The tile of a block. The last tiles come first, since they are the longest. `queries`: of a tile.
__device__ inline Tile tile_of(const Attention& a, const swy_step* step, uint32_t queries) {
  Tile tile;
  tile.per_row = a.per_kv();
  tile.part = part_of(step, gridDim.x - 1 - blockIdx.x, queries / tile.per_row);
  tile.position = tile.part.rows == 0 ? 0 : step_array<uint32_t>(step, step->row_position_at)[tile.part.first];
  tile.kv = blockIdx.y;
  return tile;
}

// ---- host

// Whether tiles are halved: if there would otherwise be fewer than the device has multiprocessors for.
inline bool cuts_tiles(const Recording& r, const Attention& a) {
  return uint64_t{r.bucket().rows} * a.heads * 4 < uint64_t{kTileQueries} * 3 * r.device().processors;
}
// Attention with q packed to bf16, scaled for weights that are powers of two.
Attention prompt_attention_of(const Recording& r);
// The kernels before a prompt's: afterwards `a.pages` are in bf16.
swy_status record_prompt_pages(const Recording& r, Attention& a);
// Writes keys and values in 8 bits to `a.expanded`, which then are the pages. Does nothing if they are in bf16.
swy_status record_expand(const Recording& r, Attention& a);
uint64_t expanded_elements(const swy_device& device, const swy_op& op, const swy_bucket& bucket);
double expand_cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket);
// Shapes that both kernels require.
swy_status supports_prompt(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error);
uint64_t prompt_workspace(const swy_device& device, const swy_op& op, const swy_bucket& bucket);
// Microseconds, with products at `rate` (multiply-adds times two per microsecond) and the time of a block with the
// longest tile.
double prompt_cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket, double rate, double block);

}  // namespace gpu
