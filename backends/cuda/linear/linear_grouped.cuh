// SPDX-License-Identifier: Apache-2.0
// Kernels of LINEAR and its fused forms for many rows on Hopper (grouped.cuh): converting rows to panels, normed if the
// operation has a norm, and the products with all weights of one encoding in one launch.
#pragma once

#include "grouped/grouped.cuh"

namespace gpu {

struct GroupedRows {
  const float* x;  // [rows, width]
  uint8_t* y;      // panels [spans of width][groups]
  float* inverse;  // [rows]: of the root of the mean square, or null
  uint32_t width, groups;
  swy_rows domain;
  bool gather, normed;  // gather: row i is row logit_row[i] of x
  Weight norm;
  float eps, bias;
};
// Records the products of up to `rows` rows with the weights of few rows (narrow.cuh). recorded: set if there are any.
swy_status record_narrow_weights(const Recording& r, const GroupedRows& x, uint32_t rows, bool& recorded);

// blockIdx.x: row.
static __global__ void __launch_bounds__(256) panel_rows(const __grid_constant__ GroupedRows p, const swy_step* step) {
  __shared__ float scratch[32];
  release_next();  // the next kernel requests its weights, then waits for this one, which waits for earlier ones
  depend();
  const uint32_t row = blockIdx.x;
  if (row >= step_rows(step, p.domain)) return;
  const uint32_t from = p.gather ? step_array<uint32_t>(step, step->logit_row_at)[row] : row;
  const float* x = p.x + uint64_t{from} * p.width;
  float scale = 1;
  if (p.normed) {
    float squares = 0;
    for (uint32_t i = threadIdx.x; i < p.width; i += blockDim.x) squares = fmaf(x[i], x[i], squares);
    scale = rsqrtf(block_sum(squares, scratch) / static_cast<float>(p.width) + p.eps);
    if (p.inverse != nullptr && threadIdx.x == 0) p.inverse[row] = scale;
  }
  const uint32_t pieces = (p.width + kSpan - 1) / kSpan * 16;
  for (uint32_t i = threadIdx.x; i < pieces; i += blockDim.x) {
    const uint32_t span = i / 16, piece = i % 16;
    const auto value = [&](uint32_t k) {
      if (k >= p.width) return 0.0f;
      return p.normed ? x[k] * (scale * (p.bias + plain_at(p.norm, k))) : x[k];
    };
    const uint64_t at = (uint64_t{span} * p.groups + row / 8) * kPanelBytes + panel_piece_offset(row, piece);
    *reinterpret_cast<uint4*>(p.y + at) = panel_piece(piece, [&](uint32_t in) { return value(span * kSpan + in); });
  }
}

struct GroupedLinear {
  const uint8_t* x;  // panels
  const float* residual;
  float* y[SWY_LINEAR_MAX_WEIGHTS];
  Bias biases[SWY_LINEAR_MAX_WEIGHTS];
  uint32_t first[SWY_LINEAR_MAX_WEIGHTS + 1];  // tile of 256 rows of a weight
  uint32_t count, spans, groups;
  swy_rows domain;
  uint32_t parts;      // of the spans: each tile's are summed in order by the block that ends last
  float* partial;      // [tiles, parts, accumulators of 4, consumers, 4]
  uint32_t* counters;  // per tile
  bool beside;         // the previous kernel starts this one once the panels are ready; waited for at the end
};
struct GroupedLinearWeights {
  StreamedWeight w[SWY_LINEAR_MAX_WEIGHTS];
};

#ifdef SWY_HOPPER

template <int N>
struct LinearWork {
  static constexpr RowOrder kOrder = RowOrder::neighbours;
  static constexpr int kRows = N, kBlocks = N <= 64 ? 1 : 2;
  static constexpr bool kReadOnce = false;
  static constexpr Waits kWaits = Waits::ahead;
  const GroupedLinear& p;
  const GroupedLinearWeights& w;
  uint32_t rows;

  __device__ uint32_t total() const { return p.first[p.count] * ((rows + N - 1) / N) * p.parts; }
  __device__ uint4 entry(uint32_t) const { return {}; }
  __device__ GroupedTile tile(uint32_t number, uint4) const {
    const uint32_t i = number / p.parts, part = number - i * p.parts;
    const uint32_t steps = p.first[p.count], n = i / steps, m = i - n * steps;
    uint32_t of = 0;
    while (of + 1 < p.count && m >= p.first[of + 1]) ++of;
    GroupedTile t;
    t.w0 = t.w1 = &w.w[of];
    t.row0 = (m - p.first[of]) * kTileRowsOfWeight;
    t.row1 = t.row0 + kBoxRows;
    t.x = p.x + uint64_t{n} * (N / 8 * kPanelBytes);
    t.span_stride = uint64_t{p.groups} * kPanelBytes;
    t.groups = min((rows - n * N + 7) / 8, static_cast<uint32_t>(N / 8));
    t.begin = p.spans * part / p.parts, t.end = p.spans * (part + 1) / p.parts;
    t.number = number;
    t.what = make_uint4(of, n * N, t.row0, t.w0->rows);
    return t;
  }
  // Lanes g and g + 1 have the even and the odd ones of 4 kBlocks neighbouring columns, for two rows. They exchange
  // half of them, so that a lane writes four neighbours: of both rows (kBlocks 2), or of one.
  template <int>
  __device__ void store(const GroupedPipe& pipe, const GroupedTile& tile, float (&acc)[kBlocks][N / 2]) const {
    if (p.parts > 1 && !join(pipe, tile.number, acc)) return;
    const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const bool odd = g % 2 != 0;
    const uint32_t column = tile.what.z + warp * 16 * kBlocks + g / 2 * 4 * kBlocks + (kBlocks == 2 && odd ? 4 : 0);
#pragma unroll
    for (int n = 0; n < N / 8; ++n) {
      const uint32_t row = tile.what.y + n * 8 + t * 2;
#pragma unroll
      for (int e = 0; e < kBlocks; ++e) {
        float v[4];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float first = acc[0][4 * n + 2 * h + e];
          const float second = kBlocks == 2 ? acc[kBlocks - 1][4 * n + 2 * h + e] : acc[0][4 * n + 2 * h + 1];
          const float own = odd ? second : first, got = __shfl_xor_sync(kAll, odd ? first : second, 4);
          v[2 * h] = odd ? got : own, v[2 * h + 1] = odd ? own : got;
        }
        put_four(tile, row + (kBlocks == 2 ? e : odd ? 1 : 0), column, v);
      }
    }
  }
  // Writes a part's sums to memory. The block that comes last gets the sums of all parts, and true.
  __device__ bool join(const GroupedPipe& pipe, uint32_t number, float (&acc)[kBlocks][N / 2]) const {
    constexpr uint32_t kFours = kBlocks * N / 8, kThreads = kConsumers<kBlocks>;
    const uint32_t tile = number / p.parts;
    auto* all = reinterpret_cast<float4*>(p.partial) + uint64_t{tile} * p.parts * kFours * kThreads + threadIdx.x;
    float4* own = all + uint64_t{number - tile * p.parts} * kFours * kThreads;
#pragma unroll
    for (uint32_t i = 0; i < kFours; ++i) {
      const float* v = &acc[i / (N / 8)][i % (N / 8) * 4];
      __stcg(own + i * kThreads, make_float4(v[0], v[1], v[2], v[3]));
    }
    named_barrier(1, kThreads);
    auto* last = reinterpret_cast<volatile uint32_t*>(pipe.memory + pipe.flag());
    if (threadIdx.x == 0) *last = comes_last(p.counters + tile, p.parts) ? 1 : 0;
    named_barrier(1, kThreads);
    if (*last == 0) return false;
#pragma unroll
    for (uint32_t i = 0; i < kBlocks * N / 2; ++i) acc[i / (N / 2)][i % (N / 2)] = 0;
    for (uint32_t part = 0; part < p.parts; ++part, all += kFours * kThreads) {
#pragma unroll
      for (uint32_t i = 0; i < kFours; ++i) {
        const float4 from = __ldcg(all + i * kThreads);
        float* v = &acc[i / (N / 8)][i % (N / 8) * 4];
        v[0] += from.x, v[1] += from.y, v[2] += from.z, v[3] += from.w;
      }
    }
    return true;
  }
  __device__ void put_four(const GroupedTile& tile, uint32_t row, uint32_t column, float (&v)[4]) const {
    const uint32_t width = tile.what.w;
    if (row >= rows || column >= width) return;
    float* to = p.y[tile.what.x] + uint64_t{row} * width + column;
    const float* residual = p.residual == nullptr ? nullptr : p.residual + uint64_t{row} * width + column;
    const Bias& bias = p.biases[tile.what.x];
    for (uint32_t i = 0; bias.data != nullptr && i < 4 && column + i < width; ++i) v[i] += bias_at(bias, column + i);
    if (width % 4 == 0) {
      if (residual != nullptr) {
        const float4 old = *reinterpret_cast<const float4*>(residual);
        v[0] += old.x, v[1] += old.y, v[2] += old.z, v[3] += old.w;
      }
      *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
      return;
    }
    for (uint32_t i = 0; i < 4 && column + i < width; ++i) to[i] = residual == nullptr ? v[i] : v[i] + residual[i];
  }
  __device__ void finish() const {}
};

#endif

template <swy_dtype kDtype, int N>
__global__ void __launch_bounds__(kGroupedThreads<(N <= 64 ? 1 : 2)>, 1)
    linear_grouped(const __grid_constant__ GroupedLinear p, const __grid_constant__ GroupedLinearWeights w,
                   const GroupedShape shape, const swy_step* step) {
#ifdef SWY_HOPPER
  extern __shared__ uint4 shared[];
  const LinearWork<N> work{p, w, step_rows(step, p.domain)};
  grouped_product<kDtype>(work, shape, reinterpret_cast<char*>(shared), p.beside);
  if (p.beside) depend();
#endif
}

}  // namespace gpu
