// SPDX-License-Identifier: Apache-2.0
#include "term_tiles.h"

namespace gpu {
namespace {

constexpr uint32_t kRows = 32;  // of activations per tile

// blockIdx.x: row.
__global__ void __launch_bounds__(128) split_rows(const __grid_constant__ TermTiles p, const swy_step* step) {
  depend();
  release_next();
  const uint32_t row = blockIdx.x, width = p.w.width, units = permuted_width(width) / 8;
  if (row >= step_rows(step, p.domain)) return;
  const float* x = p.x + uint64_t{row} * width;
  auto* high = reinterpret_cast<uint4*>(p.terms) + uint64_t{row} * 2 * units;
  for (uint32_t i = threadIdx.x; i < units; i += blockDim.x) {
    float v[8], left[8];
#pragma unroll
    for (uint32_t e = 0; e < 8; ++e) {
      v[e] = i * 8 + e < width ? x[i * 8 + e] : 0.0f;
      left[e] = v[e] - __bfloat162float(__float2bfloat16_rn(v[e]));
    }
    high[permuted_unit(i)] = permuted_eight(v);
    high[units + permuted_unit(i)] = permuted_eight(left);
  }
}

// blockIdx.x: rows of the weight; blockIdx.y: rows of activations.
__global__ void __launch_bounds__(kTileThreads) term_tiles(const __grid_constant__ TermTiles p, const swy_step* step) {
  extern __shared__ uint4 shared[];
  __shared__ uint32_t source[kRows];
  depend();
  release_next();
  const uint32_t rows = step_rows(step, p.domain), first = blockIdx.y * kRows;
  if (first >= rows) return;
  const uint32_t count = min(rows - first, kRows), permuted = permuted_width(p.w.width);
  if (threadIdx.x < kRows) source[threadIdx.x] = first + threadIdx.x;
  __syncthreads();
  const uint32_t lane = threadIdx.x % 32, base = blockIdx.x * kTileRows + threadIdx.x / 32 * 32, last = p.w.rows - 1;
  float acc[2][kRows / 8][4] = {};
  for (uint32_t term = 2; term-- > 0;) {  // the smaller one first
    multiply_tile<SWY_BF16, kRows>(p.w, base, p.w, base + 16, last, last, {p.terms + term * permuted, 2 * permuted},
                                   source, count, reinterpret_cast<char*>(shared), acc);
  }
#pragma unroll
  for (uint32_t m = 0; m < 2; ++m) {
#pragma unroll
    for (uint32_t n = 0; n < kRows / 8; ++n) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t row = base + m * 16 + lane / 4 + i / 2 * 8, token = n * 8 + lane % 4 * 2 + i % 2;
        if (row <= last && token < count) p.y[uint64_t{first + token} * p.w.rows + row] = acc[m][n][i];
      }
    }
  }
}

}  // namespace

swy_status record_term_tiles(const Recording& r, const TermTiles& p, uint32_t rows) {
  SWY_CUDA_TRY(launch(r, split_rows, rows, 128, 0, p, r.list.step));
  return launch(r, term_tiles, dim3(ceil_div(p.w.rows, kTileRows), ceil_div(rows, kRows)), kTileThreads,
                2 * kRows * kTileStride, p, r.list.step);
}

}  // namespace gpu
