// SPDX-License-Identifier: Apache-2.0
// A cluster of blocks has a tile of tokens and rows; each block multiplies a part of the width. Then they add up their
// sums through shared memory, in order, each for some of the tokens.
#include "narrow.cuh"

#include <cooperative_groups.h>

#include "common/matrix.cuh"

namespace gpu {
namespace {

namespace cg = cooperative_groups;

constexpr uint32_t kThreads = 256, kTokens = 64, kStep = 32, kStages = 3;  // kStep: elements of the width
constexpr uint32_t kStride = kStep + 8;  // of a row in shared memory, in elements: free of bank conflicts
constexpr uint32_t kWantedBlocks = 264, kMostParts = 8, kLeastWidth = 128;

// Eight warps: kGroups groups of 64 rows, times groups of 8 kGroups tokens.
template <uint32_t kGroups>
struct Form {
  static constexpr uint32_t kRows = 64 * kGroups, kSums = kRows + 4;  // kSums: floats of a token in `sums`
  struct Stage {
    uint16_t w[kRows][kStride];
    float x[kTokens][kStride];
  };
  static_assert(sizeof(float) * kTokens * kSums <= kStages * sizeof(Stage) && sizeof(Stage) % 16 == 0);
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// The weight to which a row, counted over all weights, belongs.
__device__ inline uint32_t weight_of_row(const Narrow& p, uint32_t row) {
  uint32_t i = 0;
  while (i + 1 < p.count && row >= p.first[i + 1]) ++i;
  return i;
}

// A thread's copies of one step: 16 bytes of kGroups rows, and of two tokens.
template <uint32_t kGroups>
struct Source {
  using Stage = typename Form<kGroups>::Stage;
  const uint16_t* w[kGroups];
  const float* x[2];  // null: zeros

  __device__ Source(const Narrow& p, uint32_t row0, uint32_t token0, uint32_t tokens) {
    const uint32_t rows = p.first[p.count];
#pragma unroll
    for (uint32_t i = 0; i < kGroups; ++i) {
      const uint32_t at = i * kThreads + threadIdx.x, row = row0 + at / 4, of = weight_of_row(p, min(row, rows - 1));
      w[i] = row >= rows
                 ? nullptr
                 : reinterpret_cast<const uint16_t*>(p.w[of].data) + uint64_t{row - p.first[of]} * p.width + at % 4 * 8;
    }
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t at = i * kThreads + threadIdx.x, token = token0 + at / 8;
      x[i] = token >= tokens ? nullptr : p.x + uint64_t{token} * p.width + at % 8 * 4;
    }
  }
  __device__ void ask_weights(Stage& to, const Narrow& p, uint32_t k) const {
#pragma unroll
    for (uint32_t i = 0; i < kGroups; ++i) {
      const uint32_t at = i * kThreads + threadIdx.x;
      const bool in = w[i] != nullptr;
      copy_later(&to.w[at / 4][at % 4 * 8], in ? static_cast<const void*>(w[i] + k) : p.w[0].data, in);
    }
  }
  __device__ void ask_tokens(Stage& to, const Narrow& p, uint32_t k) const {
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t at = i * kThreads + threadIdx.x;
      const bool in = x[i] != nullptr;
      copy_later(&to.x[at / 8][at % 8 * 4], in ? x[i] + k : p.x, in);
    }
  }
};

// Two neighbouring elements as two bf16 terms, the first in the lower half.
__device__ inline void two_terms(float2 v, uint32_t& high, uint32_t& low) {
  high = pack_bf16(v.x, v.y);
  low = pack_bf16(v.x - low_of(high), v.y - high_of(high));
}

// acc[m][n] of a warp: 16 rows times 8 tokens each. factors: of the step's columns, if `normed`.
template <uint32_t kGroups>
__device__ inline void multiply_step(const typename Form<kGroups>::Stage& b, const float* factors, bool normed,
                                     float (&acc)[4][kGroups][4]) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, row0 = warp % kGroups * 64,
                 token0 = warp / kGroups * 8 * kGroups;
#pragma unroll
  for (uint32_t k = 0; k < kStep; k += 16) {
    uint32_t a[4][4];
#pragma unroll
    for (uint32_t m = 0; m < 4; ++m) {
      load_matrices(a[m], shared_at(&b.w[row0 + m * 16 + lane % 16][k + lane / 16 * 8]));
    }
    float2 factor[2];
#pragma unroll
    for (uint32_t j = 0; j < 2 && normed; ++j) {
      factor[j] = *reinterpret_cast<const float2*>(factors + k + j * 8 + lane % 4 * 2);
    }
#pragma unroll
    for (uint32_t n = 0; n < kGroups; ++n) {
      uint32_t high[2], low[2];
#pragma unroll
      for (uint32_t j = 0; j < 2; ++j) {
        float2 v = *reinterpret_cast<const float2*>(&b.x[token0 + n * 8 + lane / 4][k + j * 8 + lane % 4 * 2]);
        if (normed) v.x *= factor[j].x, v.y *= factor[j].y;
        two_terms(v, high[j], low[j]);
      }
#pragma unroll
      for (uint32_t m = 0; m < 4; ++m) matrix_multiply(acc[m][n], a[m], low[0], low[1]);
#pragma unroll
      for (uint32_t m = 0; m < 4; ++m) matrix_multiply(acc[m][n], a[m], high[0], high[1]);
    }
  }
}

// A block's sums, by tokens, to shared memory.
template <uint32_t kGroups>
__device__ inline void put_sums(float* sums, const float (&acc)[4][kGroups][4]) {
  const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (uint32_t m = 0; m < 4; ++m) {
#pragma unroll
    for (uint32_t n = 0; n < kGroups; ++n) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t row = warp % kGroups * 64 + m * 16 + g + i / 2 * 8;
        const uint32_t token = warp / kGroups * 8 * kGroups + n * 8 + t * 2 + i % 2;
        sums[token * Form<kGroups>::kSums + row] = acc[m][n][i];
      }
    }
  }
}

__device__ inline void put(const Narrow& p, uint32_t token, uint32_t row, float sum) {
  const uint32_t i = weight_of_row(p, row), width = p.first[i + 1] - p.first[i];
  const float product = p.inverse == nullptr ? sum : sum * p.inverse[token];
  p.y[i][uint64_t{token} * width + row - p.first[i]] = product + bias_at(p.biases[i], row - p.first[i]);
}

// Adds up the cluster's sums of this block's share of the tokens.
template <uint32_t kGroups>
__device__ inline void put_total(const Narrow& p, uint32_t part, uint32_t token0, uint32_t row0, uint32_t tokens,
                                 float* sums) {
  using F = Form<kGroups>;
  const auto cluster = cg::this_cluster();
  cluster.sync();
  const uint32_t share = kTokens / p.parts, rows = p.first[p.count];
  for (uint32_t i = threadIdx.x; i < share * F::kRows; i += kThreads) {
    const uint32_t at = part * share + i / F::kRows, row = i % F::kRows;
    float own[kMostParts];  // all loads are issued before the first result is used
#pragma unroll
    for (uint32_t j = 0; j < kMostParts; ++j) {
      own[j] = j < p.parts ? *cluster.map_shared_rank(&sums[at * F::kSums + row], j) : 0.0f;
    }
    float sum = 0;
#pragma unroll
    for (uint32_t j = 0; j < kMostParts; ++j) sum += own[j];
    if (token0 + at < tokens && row0 + row < rows) put(p, token0 + at, row0 + row, sum);
  }
  cluster.sync();  // no block exits while another reads its shared memory
}

#endif

// blockIdx.x: 64 tokens times the parts of the width, a cluster; y: 64 kGroups rows.
template <uint32_t kGroups>
__global__ void __launch_bounds__(kThreads, 2) narrow_product(const __grid_constant__ Narrow p, const swy_step* step) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  using F = Form<kGroups>;
  extern __shared__ uint4 memory[];
  auto* stages = reinterpret_cast<typename F::Stage*>(memory);
  float* factors = reinterpret_cast<float*>(stages + kStages);
  const uint32_t tokens = step_rows(step, p.domain), part = blockIdx.x % p.parts;
  const uint32_t token0 = blockIdx.x / p.parts * kTokens, row0 = blockIdx.y * F::kRows;
  const uint32_t all = p.width / kStep, begin = all * part / p.parts, end = all * (part + 1) / p.parts;
  const Source<kGroups> from(p, row0, token0, tokens);
#pragma unroll
  for (uint32_t i = 0; i + 1 < kStages; ++i) {
    if (begin + i < end) from.ask_weights(stages[i], p, (begin + i) * kStep);
  }
  for (uint32_t k = threadIdx.x; p.normed && k < (end - begin) * kStep; k += kThreads) {
    factors[k] = p.bias + plain_at(p.norm, begin * kStep + k);
  }
  depend();
  release_next();          // not earlier: the next kernel may rely on everything that this one waited for
  if (token0 >= tokens) {  // the whole cluster
    copies_end();
    copies_wait<0>();
    return;
  }
#pragma unroll
  for (uint32_t i = 0; i + 1 < kStages; ++i) {
    if (begin + i < end) from.ask_tokens(stages[i], p, (begin + i) * kStep);
    copies_end();
  }
  float acc[4][kGroups][4] = {};
  for (uint32_t i = begin; i < end; ++i) {
    copies_wait<kStages - 2>();
    __syncthreads();  // this step has arrived, and everyone has read the one before
    if (const uint32_t next = i + kStages - 1; next < end) {
      from.ask_weights(stages[(next - begin) % kStages], p, next * kStep);
      from.ask_tokens(stages[(next - begin) % kStages], p, next * kStep);
    }
    copies_end();
    multiply_step<kGroups>(stages[(i - begin) % kStages], factors + (i - begin) * kStep, p.normed, acc);
  }
  copies_wait<0>();
  __syncthreads();
  float* sums = reinterpret_cast<float*>(memory);
  put_sums<kGroups>(sums, acc);
  put_total<kGroups>(p, part, token0, row0, tokens, sums);
#endif
}

// Blocks that a tile's width is divided among. Depends only on the size of the step if the bucket does.
uint32_t parts_of(uint32_t tokens, uint32_t row_tiles, uint32_t width) {
  const uint32_t tiles = ceil_div(tokens, kTokens) * row_tiles;
  uint32_t parts = 1;
  while (parts < kMostParts && tiles * parts * 2 <= kWantedBlocks && width / (parts * 2) >= kLeastWidth) parts *= 2;
  return parts;
}

template <uint32_t kGroups>
swy_status record_groups(const Recording& r, Narrow& p, uint32_t tokens) {
  using F = Form<kGroups>;
  const uint32_t row_tiles = ceil_div(p.first[p.count], F::kRows);
  p.parts = parts_of(tokens, row_tiles, p.width);
  const uint64_t factors = p.normed ? (p.width / kStep / p.parts + 1) * kStep * sizeof(float) : 0;
  return launch_clusters(r, narrow_product<kGroups>, p.parts, dim3(ceil_div(tokens, kTokens) * p.parts, row_tiles),
                         kThreads, kStages * sizeof(typename F::Stage) + factors, p, r.list.step);
}

}  // namespace

swy_status record_narrow(const Recording& r, Narrow& p, uint32_t tokens) {
  p.first[0] = 0;
  for (uint32_t i = 0; i < p.count; ++i) p.first[i + 1] = p.first[i] + p.w[i].rows;
  const uint32_t rows = p.first[p.count];
  if (rows <= 64) return record_groups<1>(r, p, tokens);
  return rows <= 128 ? record_groups<2>(r, p, tokens) : record_groups<4>(r, p, tokens);
}

}  // namespace gpu
