// SPDX-License-Identifier: Apache-2.0
#include "narrow.cuh"

#include "common/matrix.cuh"

namespace gpu {
namespace {

constexpr uint32_t kThreads = 256, kStep = 32, kStride = kStep + 8;  // elements; 80 bytes are free of bank conflicts
constexpr uint32_t kWantedBlocks = 400, kMostParts = 16;

struct alignas(16) Block {
  uint16_t w[2][kNarrowRows][kStride];
  uint16_t x[2][2][kNarrowTokens][kStride];  // [buffer][term]
};

// The weight to which a row, counted over all weights, belongs.
__device__ inline uint32_t weight_of_row(const Narrow& p, uint32_t row) {
  uint32_t i = 0;
  while (i + 1 < p.count && row >= p.first[i + 1]) ++i;
  return i;
}

// A thread's loads of one step: two pieces of weights, and two of x.
struct Pieces {
  uint4 w[2];
  float4 x[2];

  __device__ void load(const Narrow& p, const uint16_t* const (&from_w)[2], const float* const (&from_x)[2],
                       uint32_t k) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      w[i] = from_w[i] == nullptr ? make_uint4(0, 0, 0, 0) : __ldg(reinterpret_cast<const uint4*>(from_w[i] + k));
      x[i] = from_x[i] == nullptr ? make_float4(0, 0, 0, 0) : *reinterpret_cast<const float4*>(from_x[i] + k);
      if (!p.normed) continue;
      const uint32_t at = k + (threadIdx.x % 8) * 4;
      x[i].x *= p.bias + plain_at(p.norm, at), x[i].y *= p.bias + plain_at(p.norm, at + 1);
      x[i].z *= p.bias + plain_at(p.norm, at + 2), x[i].w *= p.bias + plain_at(p.norm, at + 3);
    }
  }
  __device__ void store(Block& b, uint32_t buffer) const {
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t at = i * kThreads + threadIdx.x;
      *reinterpret_cast<uint4*>(&b.w[buffer][at / 4][at % 4 * 8]) = w[i];
      const float v[4] = {x[i].x, x[i].y, x[i].z, x[i].w};
      uint32_t high[2], low[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const __nv_bfloat162 h = __floats2bfloat162_rn(v[2 * j], v[2 * j + 1]);
        const __nv_bfloat162 l = __floats2bfloat162_rn(v[2 * j] - __low2float(h), v[2 * j + 1] - __high2float(h));
        high[j] = *reinterpret_cast<const uint32_t*>(&h), low[j] = *reinterpret_cast<const uint32_t*>(&l);
      }
      *reinterpret_cast<uint2*>(&b.x[buffer][0][at / 8][at % 8 * 4]) = make_uint2(high[0], high[1]);
      *reinterpret_cast<uint2*>(&b.x[buffer][1][at / 8][at % 8 * 4]) = make_uint2(low[0], low[1]);
    }
  }
};

// acc[m][n] of a warp: its 32 rows times its 32 tokens.
__device__ inline void multiply_step(const Block& b, uint32_t buffer, float (&acc)[2][4][4]) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, row0 = warp % 4 * 32, token0 = warp / 4 * 32;
#pragma unroll
  for (uint32_t k = 0; k < kStep; k += 16) {
    uint32_t a[2][4];
#pragma unroll
    for (uint32_t m = 0; m < 2; ++m) {
      load_matrices(a[m], shared_at(&b.w[buffer][row0 + m * 16 + lane % 16][k + lane / 16 * 8]));
    }
#pragma unroll
    for (int term = 1; term >= 0; --term) {
#pragma unroll
      for (uint32_t n = 0; n < 2; ++n) {
        uint32_t x[4];
        const uint32_t token = token0 + n * 16 + lane / 16 * 8 + lane % 8;
        load_matrices(x, shared_at(&b.x[buffer][term][token][k + lane / 8 % 2 * 8]));
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          matrix_multiply(acc[m][2 * n], a[m], x[0], x[1]);
          matrix_multiply(acc[m][2 * n + 1], a[m], x[2], x[3]);
        }
      }
    }
  }
}

__device__ inline void put(const Narrow& p, uint32_t token, uint32_t row, float sum) {
  const uint32_t i = weight_of_row(p, row), width = p.first[i + 1] - p.first[i];
  const float product = p.inverse == nullptr ? sum : sum * p.inverse[token];
  p.y[i][uint64_t{token} * width + row - p.first[i]] = product + bias_at(p.biases[i], row - p.first[i]);
}

// Writes a block's products: results, or its part of them.
__device__ inline void put_sums(const Narrow& p, uint32_t token0, uint32_t row0, uint32_t tokens,
                                const float (&acc)[2][4][4]) {
  const uint32_t rows = p.first[p.count];
  const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t row = row0 + warp % 4 * 32 + m * 16 + g + i / 2 * 8;
        const uint32_t token = token0 + warp / 4 * 32 + n * 8 + t * 2 + i % 2;
        if (row >= rows || token >= tokens) continue;
        if (p.parts == 1) {
          put(p, token, row, acc[m][n][i]);
        } else {
          p.partial[(uint64_t{blockIdx.z} * tokens + token) * rows + row] = acc[m][n][i];
        }
      }
    }
  }
}

// The sums of all parts of a tile.
__device__ inline void put_total(const Narrow& p, uint32_t token0, uint32_t row0, uint32_t tokens) {
  const uint32_t rows = p.first[p.count];
  const uint32_t width = min(rows - row0, kNarrowRows), count = min(tokens - token0, kNarrowTokens);
#pragma unroll 4
  for (uint32_t i = threadIdx.x; i < width * count; i += kThreads) {
    const uint32_t token = token0 + i / width, row = row0 + i % width;
    float part[kMostParts];  // all loads are issued before the first result is used
#pragma unroll
    for (uint32_t j = 0; j < kMostParts; ++j) {
      part[j] = j < p.parts ? __ldcg(p.partial + (uint64_t{j} * tokens + token) * rows + row) : 0.0f;
    }
    float sum = 0;
#pragma unroll
    for (uint32_t j = 0; j < kMostParts; ++j) sum += part[j];
    put(p, token, row, sum);
  }
}

// blockIdx.x: 64 tokens; y: 128 rows; z: part of the width.
__global__ void __launch_bounds__(kThreads) narrow_product(const __grid_constant__ Narrow p, const swy_step* step) {
  __shared__ Block b;
  depend();
  release_next();  // not earlier: the next kernel may rely on everything that this one waited for
  const uint32_t tokens = step_rows(step, p.domain), token0 = blockIdx.x * kNarrowTokens,
                 row0 = blockIdx.y * kNarrowRows;
  if (token0 >= tokens) return;
  const uint32_t rows = p.first[p.count], all = (p.width + kStep - 1) / kStep;
  const uint32_t begin = all * blockIdx.z / p.parts, end = all * (blockIdx.z + 1) / p.parts;
  const uint16_t* from_w[2];
  const float* from_x[2];
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t at = i * kThreads + threadIdx.x, row = row0 + at / 4, token = token0 + at / 8;
    const uint32_t of = weight_of_row(p, min(row, rows - 1));
    from_w[i] = row >= rows ? nullptr
                            : reinterpret_cast<const uint16_t*>(p.w[of].data) + uint64_t{row - p.first[of]} * p.width +
                                  at % 4 * 8;
    from_x[i] = token >= tokens ? nullptr : p.x + uint64_t{token} * p.width + at % 8 * 4;
  }
  float acc[2][4][4] = {};
  Pieces pieces;
  if (begin < end) pieces.load(p, from_w, from_x, begin * kStep);
  for (uint32_t i = begin; i < end; ++i) {
    pieces.store(b, i % 2);
    if (i + 1 < end) pieces.load(p, from_w, from_x, (i + 1) * kStep);
    __syncthreads();
    multiply_step(b, i % 2, acc);
  }
  put_sums(p, token0, row0, tokens, acc);
  if (p.parts == 1 || !last_of(p.counters + blockIdx.y * gridDim.x + blockIdx.x, p.parts)) return;
  put_total(p, token0, row0, tokens);
}

// Depends only on the size of the step if the bucket does.
uint32_t parts_of(uint32_t tokens, uint32_t rows, uint32_t width) {
  const uint32_t tiles = ceil_div(tokens, kNarrowTokens) * ceil_div(rows, kNarrowRows);
  uint32_t parts = 1;
  while (parts < kMostParts && tiles * parts * 2 <= kWantedBlocks && width / (parts * 2) >= 128) parts *= 2;
  return parts;
}

}  // namespace

uint64_t narrow_partials(uint32_t tokens, uint32_t rows, uint32_t width) {
  const uint32_t parts = parts_of(tokens, rows, width);
  return parts == 1 ? 0 : uint64_t{parts} * tokens * rows;
}

swy_status record_narrow(const Recording& r, Narrow& p, uint32_t tokens) {
  p.first[0] = 0;
  for (uint32_t i = 0; i < p.count; ++i) p.first[i + 1] = p.first[i] + p.w[i].rows;
  p.parts = parts_of(tokens, p.first[p.count], p.width);
  const dim3 grid(ceil_div(tokens, kNarrowTokens), ceil_div(p.first[p.count], kNarrowRows), p.parts);
  if (p.parts > 1) {
    p.counters = take_counters(r.list, grid.x * grid.y, r.error);
    if (p.counters == nullptr) return SWY_UNSUPPORTED;
  }
  return launch(r, narrow_product, grid, kThreads, 0, p, r.list.step);
}

}  // namespace gpu
