// SPDX-License-Identifier: Apache-2.0
// Kernels of MOE for many rows on Hopper with activations as bytes and few rows an expert (scaled_bytes.cuh): those of
// moe_grouped.cuh, but for
//
//   gather_scaled_bytes   x as panels of bytes, in sorted order, with scales
//   gate_up_scaled_bytes  h = silu(gate) * up, likewise
//   down_scaled_bytes
#pragma once

#include "grouped/scaled_bytes.cuh"
#include "moe_grouped.cuh"

namespace gpu {

struct ScaledByteMixture {
  GroupedMixture g;           // x and h: panels of bytes
  ScaledByteScales x_scales;  // [spans of hidden / kScaledSpansOfX][rows of groups]
  ScaledByteScales h_scales;  // [spans of width][rows of groups]
};

constexpr uint32_t kScaledSpansOfX = 2;
constexpr uint32_t kGathered = 2048;             // elements of a row that a block converts at once
constexpr uint32_t kStagedRow = kSpan * 2 + 16;  // bytes: lanes that write together have no bank conflicts
constexpr uint32_t kGateUpStaging = kScaledByteRows * (kStagedRow + kSpan);  // a tile's rows in bf16, and as bytes

// The factor of the norm of a row.
__device__ inline float inverse_of(const float* x, uint32_t width, float eps, float* scratch) {
  float squares = 0;
  for (uint32_t k = threadIdx.x * 8; k < width; k += kGathered) {
    float v[8];
    load_floats(x + k, v);
#pragma unroll
    for (int i = 0; i < 8; ++i) squares = fmaf(v[i], v[i], squares);
  }
  return rsqrtf(block_sum(squares, scratch) / static_cast<float>(width) + eps);
}

// blockIdx.x: row. As gather. kNormed: of the norm of x.
template <bool kNormed>
__global__ void __launch_bounds__(256)
    gather_scaled_bytes(const __grid_constant__ ScaledByteMixture b, const __grid_constant__ InputNorm norm,
                        const swy_step* step) {
  __shared__ uint32_t to[kMostSlots];
  __shared__ float scratch[32];
  __shared__ uint4 bytes[kGathered / 16];
  const GroupedMixture& p = b.g;
  depend();
  release_next();
  const uint32_t row = blockIdx.x, slots = p.slots(), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= step_rows(step, p.m.domain)) return;
  if (threadIdx.x < slots) {
    to[threadIdx.x] =
        threadIdx.x < p.m.top_k ? sorted_row(p, row * p.m.top_k + threadIdx.x) : p.begins[p.m.experts] * 8 + row;
    p.places[row * slots + threadIdx.x] = to[threadIdx.x];
  }
  const float* x = p.m.x + uint64_t{row} * p.m.hidden;
  const float inverse = kNormed ? inverse_of(x, p.m.hidden, norm.eps, scratch) : 1;
  float sum = 0;
  for (uint32_t first = 0; first < p.m.hidden; first += kGathered) {
    const uint32_t k = first + threadIdx.x * 8;
    float v[8] = {};
    if (k < p.m.hidden) {  // the width is a multiple of eight
      const float4 low = *reinterpret_cast<const float4*>(x + k), high = *reinterpret_cast<const float4*>(x + k + 4);
      v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w, v[4] = high.x, v[5] = high.y, v[6] = high.z,
      v[7] = high.w;
      if constexpr (kNormed) {
        float of[8];
        load_plain(norm.weight, k, of);
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] *= inverse * (norm.bias + of[i]);
      }
      if (p.m.shared_width != 0) {
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) sum = fmaf(v[i], weight_at(p.m.shared_mix, 0, k + i), sum);
      }
    }
    float largest = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(v[i]));
    static_assert(kScaledSpansOfX * kSpan == 32 * 8);
    const float2 scale = byte_scale(warp_max(largest));
    const uint2 eight = eight_bytes(v, scale.y);
    uint32_t* at = reinterpret_cast<uint32_t*>(bytes) + (threadIdx.x / 16 * kSpan + byte_place(threadIdx.x % 16)) / 4;
    __syncthreads();  // `to` has been written, and earlier bytes have been read
    at[0] = eight.x, at[4] = eight.y;
    const uint32_t n = first / (32 * 8) + warp;
    if (n * 32 * 8 < p.m.hidden) {
      for (uint32_t s = lane; s < slots; s += 32) put_scale(b.x_scales, uint64_t{n} * p.groups * 8 + to[s], scale);
    }
    __syncthreads();
    const uint32_t piece = threadIdx.x % (kGathered / 16), span = first / kSpan + piece / 8;
    const uint4 own = bytes[piece];
    if (span * kSpan >= p.m.hidden) continue;
    for (uint32_t s = threadIdx.x / (kGathered / 16); s < slots; s += 2) {
      const uint64_t panel = (uint64_t{span} * p.groups + to[s] / 8) * kBytePanel;
      *reinterpret_cast<uint4*>(p.x + panel + byte_in_panel(to[s], piece % 8 * 16)) = own;
    }
  }
  if (p.m.shared_width == 0) return;
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) p.m.shared_p[row] = sigmoid(sum);
}

#ifdef SWY_HOPPER

struct ScaledGateUpBytes : GateUpWork<1> {
  static constexpr uint32_t kScaledSpans = kScaledSpansOfX;
  const ScaledByteMixture& b;

  __device__ ScaledGateUpBytes(const ScaledByteMixture& mixture, const GateUpWeights& weights, uint32_t part,
                               uint32_t of)
      : GateUpWork<1>{{}, mixture.g, weights, part, of}, b(mixture) {}
  __device__ GroupedTile tile(uint32_t i, uint4 of) const {
    GroupedTile t = GateUpWork<1>::tile(i, of);
    t.end = p.m.hidden / kByteGroup;
    t.x = p.x + uint64_t{of.y} * kBytePanel;
    t.span_stride = uint64_t{p.groups} * kBytePanel;
    return t;
  }
  __device__ const ScaledByteScales& scales() const { return b.x_scales; }
  __device__ uint64_t scale_at(const GroupedTile& t, uint32_t n) const {
    return (uint64_t{n} * p.groups + t.what.x) * 8;
  }
  // By way of bf16 in shared memory, so that 16 lanes have a row.
  template <int N>
  __device__ void store_bytes(const ScaledBytePipe& pipe, const GroupedTile& tile, float (&acc)[N / 2]) const {
    char* rows = pipe.memory + pipe.staging;
    uint8_t* panels = reinterpret_cast<uint8_t*>(rows) + kScaledByteRows * kStagedRow;
    const uint32_t column = byte_row<kOrder>(0);
    const bool in = tile.what.z + column < tile.what.w;
    char* to = rows + threadIdx.x % 4 * 2 * kStagedRow + column * 2;
#pragma unroll
    for (int n = 0; n < N / 8; ++n) {
#pragma unroll
      for (uint32_t e = 0; e < 2; ++e) {
        const float v = fast_silu(acc[4 * n + e]) * acc[4 * n + 2 + e];
        *reinterpret_cast<__nv_bfloat16*>(to + (n * 8 + e) * kStagedRow) = __float2bfloat16(in ? v : 0.0f);
      }
    }
    if (threadIdx.x == 0) copies_out_read();
    named_barrier(1, kByteConsumers);
    const uint32_t span = tile.what.z / kSpan, end = tile.groups * 8;
    for (uint32_t r = threadIdx.x / 16; r < end; r += kByteConsumers / 16) put_row(rows, panels, r, span, tile.what.x);
    stores_visible_to_copies();
    named_barrier(1, kByteConsumers);
    if (threadIdx.x == 0) {
      copy_out(p.h + (uint64_t{span} * p.groups + tile.what.x) * kBytePanel, shared_at(panels),
               tile.groups * kBytePanel);
    }
  }
  // By 16 lanes: a row as bytes, and its scale. Whole warps call this.
  __device__ void put_row(const char* rows, uint8_t* panels, uint32_t r, uint32_t span, uint32_t group) const {
    const uint32_t e = threadIdx.x % 16;
    const uint4 q = *reinterpret_cast<const uint4*>(rows + r * kStagedRow + e * 16);
    const uint32_t words[4] = {q.x, q.y, q.z, q.w};
    float v[8], largest = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[2 * i] = low_of(words[i]), v[2 * i + 1] = high_of(words[i]);
      largest = fmaxf(largest, fmaxf(fabsf(v[2 * i]), fabsf(v[2 * i + 1])));
    }
#pragma unroll
    for (int d = 8; d > 0; d /= 2) largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, d));
    const float2 scale = byte_scale(largest);
    const uint2 eight = eight_bytes(v, scale.y);
    uint8_t* panel = panels + r / 8 * kBytePanel;
    *reinterpret_cast<uint32_t*>(panel + byte_in_panel(r, byte_place(e))) = eight.x;
    *reinterpret_cast<uint32_t*>(panel + byte_in_panel(r, byte_place(e) + 16)) = eight.y;
    if (e == 0) put_scale(b.h_scales, (uint64_t{span} * p.groups + group) * 8 + r, scale);
  }
};

struct ScaledDownBytes : DownWork<1> {
  static constexpr uint32_t kScaledSpans = 1;
  const ScaledByteMixture& b;

  __device__ ScaledDownBytes(const ScaledByteMixture& mixture, const DownWeights& weights, uint32_t part, uint32_t of)
      : DownWork<1>{{}, mixture.g, weights, part, of}, b(mixture) {}
  __device__ GroupedTile tile(uint32_t i, uint4 of) const {
    GroupedTile t = DownWork<1>::tile(i, of);
    t.end = (of.x == p.m.experts ? p.m.shared_width : p.m.width) / kByteGroup;
    t.x = p.h + uint64_t{of.y} * kBytePanel;
    t.span_stride = uint64_t{p.groups} * kBytePanel;
    return t;
  }
  __device__ const ScaledByteScales& scales() const { return b.h_scales; }
  __device__ uint64_t scale_at(const GroupedTile& t, uint32_t n) const {
    return (uint64_t{n} * p.groups + t.what.x) * 8;
  }
  template <int N>
  __device__ void store_bytes(const ScaledBytePipe&, const GroupedTile& tile, const float (&acc)[N / 2]) const {
    const uint32_t g = threadIdx.x % 32 / 4, column = tile.what.z + threadIdx.x / 32 * 16 + threadIdx.x % 4 * 4;
#pragma unroll
    for (int n = 0; n < N / 8; ++n) {
      uint32_t v[2];
      transpose_results(acc + 4 * n, v);
      const uint32_t row = n * 8 + g;
      if (row >= tile.what.y || column >= p.m.hidden) continue;
      *reinterpret_cast<uint2*>(p.pairs + (uint64_t{tile.what.x} * 8 + row) * p.m.hidden + column) = four_columns(v);
    }
  }
};

#endif

__global__ void __launch_bounds__(kByteThreads, 1)
    gate_up_scaled_bytes(const __grid_constant__ ScaledByteMixture b, const __grid_constant__ GateUpWeights w,
                         uint32_t parts, uint32_t steps, const ScaledByteShape shape) {
#ifdef SWY_HOPPER
  extern __shared__ uint4 shared[];
  product_of_scaled_bytes(ScaledGateUpBytes(b, w, parts, steps), shape, reinterpret_cast<char*>(shared));
#endif
}

__global__ void __launch_bounds__(kByteThreads, 1)
    down_scaled_bytes(const __grid_constant__ ScaledByteMixture b, const __grid_constant__ DownWeights w,
                      uint32_t parts, uint32_t steps, const ScaledByteShape shape) {
#ifdef SWY_HOPPER
  extern __shared__ uint4 shared[];
  product_of_scaled_bytes(ScaledDownBytes(b, w, parts, steps), shape, reinterpret_cast<char*>(shared));
#endif
}

}  // namespace gpu
