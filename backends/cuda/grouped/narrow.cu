// SPDX-License-Identifier: Apache-2.0
// A cluster of blocks has a tile of tokens and rows; each block multiplies a part of the width. Then they add up their
// sums through shared memory, in order, each for some of the tokens.
//
// A block converts 64 columns of its tokens to terms while the products of the previous 64 run. The copy engine brings
// the weights' rows, 32 at a time: so rows are numbered as if each weight had a multiple of 32.
#include "narrow.cuh"

#include <cooperative_groups.h>

#include "common/matrix.cuh"
#include "common/warp_choice.cuh"
#include "common/wgmma.cuh"
#include "host/tensor_map.h"

namespace gpu {
namespace {

namespace cg = cooperative_groups;

constexpr uint32_t kThreads = 512, kRing = 3, kBox = 32;  // kBox: rows
[[maybe_unused]] constexpr uint32_t kColumns = 64;
constexpr uint32_t kWantedBlocks = 132, kMostParts = 8, kLeastWidth = 128;
constexpr uint32_t kTile = 128, kSmallTile = 64;  // tokens
constexpr uint32_t kMostClusters = 15;            // of kMostParts blocks that run at once on an H100 and an H200; of
                                                  // half as many twice as many

struct NarrowMaps {
  CUtensorMap boxes[SWY_LINEAR_MAX_WEIGHTS];
};

// Four warpgroups: kGroups groups of 64 rows, times groups of kN of a tile's tokens.
template <uint32_t kGroups, uint32_t kTokens>
struct Form {
  static constexpr uint32_t kN = kTokens * kGroups / 4, kTermBytes = kTokens * kBoxBytes;  // kTermBytes: 64 columns
  static constexpr uint32_t kRows = 64 * kGroups, kSums = kRows + 4;  // kSums: floats of a token in `sums`
  static constexpr uint32_t kStage = kRows * kBoxBytes;               // a ring of weights, then two times two terms
  static constexpr uint32_t kBarriers = kRing * kStage + 4 * kTermBytes, kBytes = kBarriers + kRing * 8;
  static_assert(sizeof(float) * kTokens * kSums <= kBarriers && kN % 8 == 0);  // wgmma's groups of columns
};

#ifdef SWY_HOPPER

// The weight to which a row, counted over all weights, belongs.
__device__ inline uint32_t weight_of_row(const Narrow& p, uint32_t row) {
  uint32_t i = 0;
  while (i + 1 < p.count && row >= p.first[i + 1]) ++i;
  return i;
}

// Requests columns k to k + 63 (two bytes each) of a tile's rows. A warp calls this.
template <uint32_t kGroups>
__device__ inline void ask_weights(const Narrow& p, const NarrowMaps& maps, uint32_t row0, uint32_t k, uint32_t to,
                                   uint32_t barrier) {
  const uint32_t lane = threadIdx.x, boxes = min(2 * kGroups, (p.first[p.count] - row0) / kBox);
  if (lane == 0) barrier_expect(barrier, boxes * kBox * kBoxBytes);
  __syncwarp();
  if (lane >= boxes) return;
  const uint32_t row = row0 + lane * kBox, of = weight_of_row(p, row);
  copy_box(to + lane * kBox * kBoxBytes, maps.boxes[of], k * 2, row - p.first[of], barrier);
}

// Two neighbouring elements as two bf16 terms, the first in the lower half.
__device__ inline void two_terms(float2 v, uint32_t& high, uint32_t& low) {
  high = pack_bf16(v.x, v.y);
  low = pack_bf16(v.x - low_of(high), v.y - high_of(high));
}

// A thread's elements of 64 columns: four columns of every 32nd token.
template <uint32_t kTokens>
struct TokenColumns {
  static constexpr uint32_t kEach = kTokens / 32;
  const float* x;
  uint32_t token, tokens, column;
  float4 v[kEach];
  float factor[4], squares[kEach] = {};  // squares: of the elements that were put

  __device__ TokenColumns(const Narrow& p, uint32_t token0, uint32_t of)
      : token(token0 + threadIdx.x / 16), tokens(of), column(threadIdx.x % 16 * 4) {
    x = p.x + uint64_t{token} * p.width + column;
  }
  __device__ void load(const Narrow& p, uint32_t k) {
    const bool in = k + column < p.width;
#pragma unroll
    for (uint32_t j = 0; j < kEach; ++j) {
      v[j] = make_float4(0, 0, 0, 0);
      if (in && token + j * 32 < tokens) v[j] = *reinterpret_cast<const float4*>(x + uint64_t{j} * 32 * p.width + k);
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) factor[i] = p.normed && in ? p.bias + plain_at(p.norm, k + column + i) : 1.0f;
  }
  // Both terms, in the order of the second operand.
  template <bool kRoots>
  __device__ void put(char* terms) {
    const uint32_t t = threadIdx.x / 16, piece = threadIdx.x % 16;
    char* to = terms + t * kBoxBytes + ((piece / 2) ^ (t % 8)) * 16 + piece % 2 * 8;
#pragma unroll
    for (uint32_t j = 0; j < kEach; ++j) {
      if constexpr (kRoots) {
        squares[j] = fmaf(v[j].x, v[j].x, fmaf(v[j].y, v[j].y, fmaf(v[j].z, v[j].z, fmaf(v[j].w, v[j].w, squares[j]))));
      }
      uint2 high, low;
      two_terms(make_float2(v[j].x * factor[0], v[j].y * factor[1]), high.x, low.x);
      two_terms(make_float2(v[j].z * factor[2], v[j].w * factor[3]), high.y, low.y);
      *reinterpret_cast<uint2*>(to + j * 32 * kBoxBytes) = high;
      *reinterpret_cast<uint2*>(to + kTokens * kBoxBytes + j * 32 * kBoxBytes) = low;
    }
  }
  // The squares of the tokens' columns, `stride` floats apart.
  __device__ void put_squares(float* to, uint32_t stride) const {
#pragma unroll
    for (uint32_t j = 0; j < kEach; ++j) {
      float sum = squares[j];
#pragma unroll
      for (uint32_t lanes = 8; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(kAll, sum, lanes);
      if (threadIdx.x % 16 == 0) to[(threadIdx.x / 16 + j * 32) * stride] = sum;
    }
  }
};

// Begins acc += weights times terms, 64 columns. `a` must be kept until the products are done.
template <uint32_t kGroups, uint32_t kTokens>
__device__ inline void multiply_columns(uint32_t weights, uint32_t terms, uint32_t (&a)[4][4],
                                        float (&acc)[kTokens * kGroups / 8]) {
  constexpr int kN = Form<kGroups, kTokens>::kN;
  const uint32_t group = threadIdx.x / 128, lane = threadIdx.x % 32;
  const uint32_t row = group % kGroups * 64 + threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
  for (uint32_t s = 0; s < 4; ++s) {
    load_matrices(a[s], weights + row * kBoxBytes + ((s * 2 + lane / 16) ^ (row % 8)) * 16);
  }
  const uint64_t high = rows_descriptor(terms + group / kGroups * kN * kBoxBytes, 8 * kBoxBytes);
  const uint64_t low = high + kTokens * kBoxBytes / 16;
#pragma unroll
  for (uint32_t s = 0; s < 4; ++s) keep(a[s]);
  products_begin();
#pragma unroll
  for (uint32_t s = 0; s < 4; ++s) {
    matrix_product<kN>(acc, a[s], low + s * 2);
    matrix_product<kN>(acc, a[s], high + s * 2);
  }
  products_commit();
}

// A block's sums, by tokens, to shared memory.
template <uint32_t kGroups, uint32_t kTokens>
__device__ inline void put_sums(float* sums, const float (&acc)[kTokens * kGroups / 8]) {
  using F = Form<kGroups, kTokens>;
  const uint32_t group = threadIdx.x / 128, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const uint32_t row = group % kGroups * 64 + threadIdx.x / 32 % 4 * 16 + g, token = group / kGroups * F::kN + t * 2;
#pragma unroll
  for (uint32_t n = 0; n < F::kN / 8; ++n) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      sums[(token + n * 8 + i % 2) * F::kSums + row + i / 2 * 8] = acc[4 * n + i];
    }
  }
}

// Four neighbouring rows of one weight, with the token's factor.
__device__ inline void put(const Narrow& p, uint32_t token, uint32_t row, float4 sum, float by) {
  const uint32_t i = weight_of_row(p, row), of = row - p.first[i], rows = p.w[i].rows;
  const float v[4] = {sum.x, sum.y, sum.z, sum.w};
  float out[4];
#pragma unroll
  for (uint32_t e = 0; e < 4; ++e) out[e] = v[e] * by + (of + e < rows ? bias_at(p.biases[i], of + e) : 0.0f);
  float* y = p.y[i] + uint64_t{token} * rows + of;
  if (rows % 4 == 0 && of < rows) {
    *reinterpret_cast<float4*>(y) = make_float4(out[0], out[1], out[2], out[3]);
    return;
  }
#pragma unroll
  for (uint32_t e = 0; e < 4; ++e) {
    if (of + e < rows) y[e] = out[e];
  }
}

// Adds up the cluster's sums of this block's share of the tokens, and their squares. The loads of a thread are all
// issued before the first result is used, since a store may be to what a later load reads.
template <uint32_t kGroups, uint32_t kTokens, bool kRoots>
__device__ inline void put_total(const Narrow& p, uint32_t part, uint32_t token0, uint32_t row0, uint32_t tokens,
                                 const float* sums) {
  using F = Form<kGroups, kTokens>;
  constexpr uint32_t kAtOnce = kTokens / kSmallTile, kFours = F::kRows / 4;
  const auto cluster = cg::this_cluster();
  cluster.sync();
  const uint32_t share = kTokens / p.parts, rows = p.first[p.count];
  for (uint32_t first = threadIdx.x; first < share * kFours; first += kThreads * kAtOnce) {
    float4 own[kAtOnce][kMostParts];
    float squares[kAtOnce][kRoots ? kMostParts : 1] = {};
#pragma unroll
    for (uint32_t n = 0; n < kAtOnce; ++n) {
      const uint32_t i = min(first + n * kThreads, share * kFours - 1), at = part * share + i / kFours;
#pragma unroll
      for (uint32_t j = 0; j < kMostParts; ++j) {
        own[n][j] = make_float4(0, 0, 0, 0);
        if (j >= p.parts) continue;
        const float* from = cluster.map_shared_rank(const_cast<float*>(&sums[at * F::kSums]), j);
        own[n][j] = *reinterpret_cast<const float4*>(from + i % kFours * 4);
        if constexpr (kRoots) squares[n][j] = from[F::kRows];
      }
    }
#pragma unroll
    for (uint32_t n = 0; n < kAtOnce; ++n) {
      const uint32_t i = first + n * kThreads, at = part * share + i / kFours, row = row0 + i % kFours * 4;
      float4 sum = own[n][0];
#pragma unroll
      for (uint32_t j = 1; j < kMostParts; ++j) {
        sum.x += own[n][j].x, sum.y += own[n][j].y, sum.z += own[n][j].z, sum.w += own[n][j].w;
      }
      if (i >= share * kFours || token0 + at >= tokens || row >= rows) continue;
      float by = p.inverse == nullptr ? 1.0f : p.inverse[token0 + at];
      if constexpr (kRoots) {
        float all = 0;
#pragma unroll
        for (uint32_t j = 0; j < kMostParts; ++j) all += squares[n][j];
        by = rsqrtf(all / static_cast<float>(p.width) + p.eps);
      }
      put(p, token0 + at, row, sum, by);
    }
  }
  cluster.sync();  // no block exits while another reads its shared memory
}

// Chooses for this block's share of the tokens, when all of their results are written.
template <uint32_t kTokens>
__device__ inline void put_choices(const Narrow& p, uint32_t part, uint32_t token0, uint32_t tokens) {
  const uint32_t share = kTokens / p.parts, rows = p.w[0].rows, top_k = p.choice.top_k;
  for (uint32_t i = threadIdx.x / 32; i < share; i += kThreads / 32) {
    const uint64_t token = token0 + part * share + i;
    if (token >= tokens) return;
    choose_by_warp<kMostNarrowChoices / 32>(p.y[0] + token * rows, rows, top_k, nullptr, p.choice.ids + token * top_k,
                                            p.choice.weights + token * top_k);
  }
}

#endif

// blockIdx.x: kTokens tokens times the parts of the width, a cluster; y: 64 kGroups rows. kRoots: Narrow::roots.
template <uint32_t kGroups, uint32_t kTokens, bool kRoots>
__global__ void __launch_bounds__(kThreads, 1)
    narrow_product(const __grid_constant__ Narrow p, const __grid_constant__ NarrowMaps maps, const swy_step* step) {
#ifdef SWY_HOPPER
  using F = Form<kGroups, kTokens>;
  extern __shared__ __align__(1024) char memory_of_narrow[];
  char* terms = memory_of_narrow + kRing * F::kStage;
  const uint32_t base = shared_at(memory_of_narrow), barriers = base + F::kBarriers;
  const uint32_t part = blockIdx.x % p.parts, token0 = blockIdx.x / p.parts * kTokens, row0 = blockIdx.y * F::kRows;
  const uint32_t all = (p.width + kColumns - 1) / kColumns, begin = all * part / p.parts;
  const uint32_t steps = all * (part + 1) / p.parts - begin;
  const auto ask = [&](uint32_t i) {
    if (threadIdx.x >= 32 || i >= steps) return;
    const uint32_t slot = i % kRing;
    ask_weights<kGroups>(p, maps, row0, (begin + i) * kColumns, base + slot * F::kStage, barriers + slot * 8);
  };
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < kRing; ++i) barrier_init(barriers + i * 8, 1);
    publish_barriers();
  }
  __syncthreads();
  for (uint32_t i = 0; i < kRing; ++i) ask(i);
  depend();
  release_next();  // not earlier: the next kernel may rely on everything that this one waited for
  const uint32_t tokens = step_rows(step, p.domain);
  if (token0 >= tokens) {  // the whole cluster
    for (uint32_t i = 0; i < min(kRing, steps); ++i) barrier_wait(barriers + i * 8, 0);
    return;
  }
  TokenColumns<kTokens> x(p, token0, tokens);
  x.load(p, begin * kColumns);
  x.template put<kRoots>(terms);
  if (steps > 1) x.load(p, (begin + 1) * kColumns);
  float acc[F::kN / 2];
#pragma unroll
  for (float& sum : acc) sum = 0;
  for (uint32_t i = 0; i < steps; ++i) {
    const uint32_t slot = i % kRing;
    stores_visible_to_copies();
    __syncthreads();  // this step's terms are there, and everyone is done with the step before
    if (i != 0) ask(i - 1 + kRing);
    barrier_wait(barriers + slot * 8, i / kRing % 2);
    uint32_t a[4][4];
    multiply_columns<kGroups, kTokens>(base + slot * F::kStage, shared_at(terms) + i % 2 * 2 * F::kTermBytes, a, acc);
    if (i + 1 < steps) x.template put<kRoots>(terms + (i + 1) % 2 * 2 * F::kTermBytes);
    if (i + 2 < steps) x.load(p, (begin + i + 2) * kColumns);
    products_wait<0>();
#pragma unroll
    for (uint32_t s = 0; s < 4; ++s) keep(a[s]);
    keep(acc);
  }
  __syncthreads();
  float* sums = reinterpret_cast<float*>(memory_of_narrow);
  put_sums<kGroups, kTokens>(sums, acc);
  if constexpr (kRoots) x.put_squares(sums + F::kRows, F::kSums);
  put_total<kGroups, kTokens, kRoots>(p, part, token0, row0, tokens, sums);
  if (p.choice.ids != nullptr) put_choices<kTokens>(p, part, token0, tokens);
#endif
}

// Blocks that a tile's width is divided among, `most` at most. Depends only on the size of the step if the bucket does.
uint32_t parts_of(uint32_t tiles, uint32_t width, uint32_t most) {
  uint32_t parts = 1;
  while (parts < most && tiles * parts * 2 <= kWantedBlocks && width / (parts * 2) >= kLeastWidth) parts *= 2;
  return parts;
}

// The tiles of a product with so many rows of weights, and at most how many parts their width has.
struct Tiling {
  uint32_t groups, tokens, tiles, most_parts;
};

Tiling tiling_of(uint32_t rows, uint32_t tokens) {
  const auto tiles = [&](uint32_t groups, uint32_t of) { return ceil_div(rows, 64 * groups) * ceil_div(tokens, of); };
  if (rows <= 128) {
    const uint32_t groups = ceil_div(rows, 64u);
    return {groups, kTile, tiles(groups, kTile), kMostParts};
  }
  // Half of a large tile's products, and half of its sums to be added up: where as many blocks run at once.
  const uint32_t small = tiles(4, kSmallTile);
  if (small * kMostParts / 2 > kWantedBlocks) return {4, kTile, tiles(4, kTile), kMostParts};
  return {4, kSmallTile, small, small <= kMostClusters ? kMostParts : kMostParts / 2};
}

template <uint32_t kGroups, uint32_t kTokens>
swy_status record_groups(const Recording& r, const Narrow& p, const NarrowMaps& maps, uint32_t tokens) {
  using F = Form<kGroups, kTokens>;
  const uint32_t row_tiles = ceil_div(p.first[p.count], F::kRows), token_tiles = ceil_div(tokens, kTokens);
  const auto kernel = p.roots ? narrow_product<kGroups, kTokens, true> : narrow_product<kGroups, kTokens, false>;
  return launch_clusters(r, kernel, p.parts, dim3(token_tiles * p.parts, row_tiles), kThreads, F::kBytes, p, maps,
                         r.list.step);
}

}  // namespace

uint32_t narrow_blocks(uint32_t rows, uint32_t width, uint32_t tokens) {
  const Tiling t = tiling_of(rows, tokens);
  return t.tiles * parts_of(t.tiles, width, t.most_parts);
}

swy_status record_narrow(const Recording& r, Narrow& p, uint32_t tokens) {
  NarrowMaps maps{};
  p.first[0] = 0;
  for (uint32_t i = 0; i < p.count; ++i) {
    p.first[i + 1] = p.first[i] + ceil_div(p.w[i].rows, kBox) * kBox;
    SWY_CUDA_TRY(map_boxes(p.w[i], kBox, &maps.boxes[i], r.error));
  }
  const Tiling t = tiling_of(p.first[p.count], tokens);
  p.parts = parts_of(t.tiles, p.width, t.most_parts);
  if (t.groups == 1) return record_groups<1, kTile>(r, p, maps, tokens);
  if (t.groups == 2) return record_groups<2, kTile>(r, p, maps, tokens);
  if (t.tokens == kTile) return record_groups<4, kTile>(r, p, maps, tokens);
  return record_groups<4, kSmallTile>(r, p, maps, tokens);
}

}  // namespace gpu
