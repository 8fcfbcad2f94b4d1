// SPDX-License-Identifier: Apache-2.0
// The blocks of linear_boxes.cu that have rows of a plain weight (the gates of the delta rule).
#pragma once

#include "common/term_rows.cuh"
#include "linear_boxes.cuh"

namespace gpu {

// Up to 16 rows of a weight in bf16, with four rows of activations, by tensor cores.
__device__ inline void multiply_few_plain(const Boxes& b, uint32_t w, uint32_t first, uint32_t rows,
                                          const swy_step* step, char* dynamic, Stamps& stamps) {
  const Projection& p = b.p;
  const TermBlock<kPlainRows> block{*reinterpret_cast<TermMemory<kPlainRows>*>(first_box(dynamic)), p.width};
  block.keep(p.weights[w], first, rows);
  block.keep_factors(p.norm, p.normed, p.bias);
  const uint32_t x_rows = step_rows(step, p.domain), row = threadIdx.x % kPlainRows, m = threadIdx.x / kPlainRows;
  release_next();
  __syncthreads();
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  block.multiply(p.x, x_rows);
  __syncthreads();
  if (m >= kQuad || m >= x_rows || row >= rows) return;
  const uint32_t at = m * p.weights[w].rows + first + row;
  const float residual = p.residual == nullptr ? 0.0f : __ldcg(p.residual + at);
  const float scale = p.normed ? inverse_root(block.memory.squares[m], b.per_dim, p.eps) : 1.0f;
  p.y[w][at] = fmaf(block.sum(row, m), scale, residual);
}
static_assert(kSliceThreads == kTermThreads && kPlainWarps * kSlice <= kTermWidth &&
              sizeof(TermMemory<kPlainRows>) + 1024 <= kPlainMemory);

// Up to 16 rows of one plain weight. Warps share the columns as in multiply_block; the second half of the warps has the
// second half of the rows. Several rows of activations are multiplied one after the other by weights kept in shared
// memory (kKeeps), or read again from the second-level cache.
template <uint32_t kRows, bool kKeeps>
__device__ void multiply_plain(const Boxes& b, const swy_step* step, char* dynamic) {
  constexpr uint32_t kWarpRows = kPlainRows / 2;
  __shared__ float part[kRows][kPlainWarps * kPlainRows];
  __shared__ __align__(16) float squares_of[kRows][kSliceWarps];
  const Projection& p = b.p;
  const uint32_t warp = threadIdx.x / 32 % kPlainWarps, half = threadIdx.x / 32 / kPlainWarps, lane = threadIdx.x % 32;
  Stamps stamps(kStampGates);
  uint32_t w = 0, block = blockIdx.x - b.tile_blocks;
  while (b.quantized[w] || block >= plain_blocks(p.weights[w].rows)) {
    if (!b.quantized[w]) block -= plain_blocks(p.weights[w].rows);
    ++w;
  }
  const Weight& weight = p.weights[w];
  const uint32_t first = block * kPlainRows, rows = min(kPlainRows, weight.rows - first), own = half * kWarpRows;
  const bool works = warp < b.slices(), early = weight.dtype == SWY_BF16 && (kKeeps || kRows == 1);
  if constexpr (kRows == kQuad && kKeeps) {
    if (early) return multiply_few_plain(b, w, first, rows, step, dynamic, stamps);
  }
  uint4 pieces[kWarpRows] = {};
  auto* kept = reinterpret_cast<uint4*>(first_box(dynamic)) + threadIdx.x;
#pragma unroll
  for (uint32_t r = 0; r < kWarpRows; ++r) {
    if (works && early && own + r < rows)
      pieces[r] = load_piece(weight.data + ((first + own + r) * p.width / 8 + warp * 32 + lane) * 16);
  }
#pragma unroll
  for (uint32_t r = 0; kKeeps && kRows > 1 && r < kWarpRows; ++r) kept[r * kSliceThreads] = pieces[r];
  float factors[8] = {};
  if (works) factors_of(b, warp, factors);
  const uint32_t x_rows = step_rows(step, p.domain);
  release_next();
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  float v[8] = {}, next[8] = {};  // 0 for slices and rows that do not exist; the next row's loads are under way
  const float* from = p.x + warp * kSlice + lane * 8;
  if (works && x_rows > 0) load_eight_fresh(from, v);
  if (works && kRows > 1 && x_rows > 1) load_eight_fresh(from + p.width, next);
#pragma unroll 1
  for (uint32_t m = 0; m < kRows; ++m) {
    float squares = 0, sum[kWarpRows];
    finish_eight(b, factors, v, squares);
#pragma unroll
    for (uint32_t r = 0; r < kWarpRows; ++r) {
      float of[8] = {};
      if (early) {
        unpack_eight(kKeeps && kRows > 1 ? kept[r * kSliceThreads] : pieces[r], of);
      } else if (works && own + r < rows) {
        plain_eight(weight, (first + own + r) * p.width / 8 + warp * 32 + lane, of);
      }
      sum[r] = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[r] = fmaf(v[j], of[j], sum[r]);
    }
    const float mine = sum_lanes<kWarpRows, 16>(sum);
    if (lane % 4 == 0) part[m][warp * kPlainRows + own + lane / 4] = mine;
    if (lane == 0) squares_of[m][threadIdx.x / 32] = half == 0 ? squares : 0.0f;
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = next[j];
    if (kRows > 2 && works && m + 2 < x_rows) load_eight_fresh(from + (m + 2) * p.width, next);
  }
  __syncthreads();
  const uint32_t row = threadIdx.x % kPlainRows, m = threadIdx.x / kPlainRows;
  if (m >= kRows || m >= x_rows || row >= rows) return;
  const uint32_t at = m * weight.rows + first + row;
  const float residual = p.residual == nullptr ? 0.0f : __ldcg(p.residual + at);
  float total = 0;
#pragma unroll
  for (uint32_t i = 0; i < kPlainWarps; ++i) total += part[m][i * kPlainRows + row];
  p.y[w][at] = fmaf(total, p.normed ? inverse_root(squares_of[m], b.per_dim, p.eps) : 1.0f, residual);
}

}  // namespace gpu
