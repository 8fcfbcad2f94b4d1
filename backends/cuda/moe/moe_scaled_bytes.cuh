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
  GroupedMixture g;  // x and h: panels of bytes (scaled_byte_rows.cuh)
  ScaledByteScales x_scales, h_scales;
};

constexpr uint32_t kGathered = 2048;             // elements of a row that a block converts at once
constexpr uint32_t kStagedRow = kSpan * 2 + 16;  // bytes: lanes that write together have no bank conflicts

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

// Elements k to k + 7 of a row of x, or of its norm. The width is a multiple of eight.
template <bool kNormed>
__device__ inline void load_gathered(const Mixture& m, const InputNorm& norm, float inverse, uint32_t row, uint32_t k,
                                     float (&v)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = 0;
  if (k >= m.hidden) return;
  load_floats(m.x + uint64_t{row} * m.hidden + k, v);
  if constexpr (kNormed) {
    float of[8];
    load_plain(norm.weight, k, of);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] *= inverse * (norm.bias + of[i]);
  }
}

// Blocks that the threads of a multiprocessor are enough for: 2,048 on some cards, at least 1,536 on all.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900 || \
    (__CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1100)
constexpr uint32_t kGatherBlocks = 8;
#else
constexpr uint32_t kGatherBlocks = 6;
#endif

// blockIdx.x: row. As gather. kNormed: of the norm of x, which is older than the previous kernel and loaded before the
// wait; so as many blocks as possible should be there.
template <bool kNormed>
__global__ void __launch_bounds__(256, kGatherBlocks)
    gather_scaled_bytes(const __grid_constant__ ScaledByteMixture b, const __grid_constant__ InputNorm norm,
                        const swy_step* step) {
  __shared__ uint32_t to[kMostSlots];
  __shared__ float scratch[32], scales[kGathered / kByteColumns];
  __shared__ uint4 bytes[kGathered / 16];
  const GroupedMixture& p = b.g;
  const uint32_t row = blockIdx.x, slots = p.slots(), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool there = row < step_rows(step, p.m.domain);
  float inverse = 1, v[8];
  if (there) {
    if (kNormed) inverse = inverse_of(p.m.x + uint64_t{row} * p.m.hidden, p.m.hidden, norm.eps, scratch);
    load_gathered<kNormed>(p.m, norm, inverse, row, threadIdx.x * 8, v);
  }
  depend();
  release_next();  // not earlier: the next kernel relies on the list of tiles
  if (!there) return;
  if (threadIdx.x < slots) {
    to[threadIdx.x] =
        threadIdx.x < p.m.top_k ? sorted_row(p, row * p.m.top_k + threadIdx.x) : p.begins[p.m.experts] * 8 + row;
    p.places[row * slots + threadIdx.x] = to[threadIdx.x];
  }
  float sum = 0, last = 0;  // last: scale of the stage before the block's
  for (uint32_t first = 0; first < p.m.hidden; first += kGathered) {
    const uint32_t k = first + threadIdx.x * 8;
    if (first != 0) load_gathered<kNormed>(p.m, norm, inverse, row, k, v);
    if (p.m.shared_width != 0 && k < p.m.hidden) {
#pragma unroll
      for (uint32_t i = 0; i < 8; ++i) sum = fmaf(v[i], weight_at(p.m.shared_mix, 0, k + i), sum);
    }
    float largest = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(v[i]));
    static_assert(kByteColumns == 32 * 8);
    const float2 scale = byte_scale(warp_max(largest));
    const uint2 eight = eight_bytes(v, scale.y);
    uint32_t* at = reinterpret_cast<uint32_t*>(bytes) + (threadIdx.x / 16 * kSpan + byte_place(threadIdx.x % 16)) / 4;
    if (lane == 0) scales[warp] = scale.x;
    __syncthreads();  // `to` and `scales` have been written, and earlier bytes have been read
    at[0] = eight.x, at[4] = eight.y;
    const uint32_t n = first / kByteColumns + warp;
    if (n * kByteColumns < p.m.hidden) {
      const float before = warp != 0 ? scales[warp - 1] : last, ratio = n == 0 ? 1 : before * scale.y;
      for (uint32_t s = lane; s < slots; s += 32) put_scale(b.x_scales, n, to[s], scale.x, ratio);
    }
    last = scales[kGathered / kByteColumns - 1];
    __syncthreads();
    const uint32_t piece = threadIdx.x % (kGathered / 16), span = first / kSpan + piece / 8;
    const uint4 own = bytes[piece];
    if (span * kSpan >= p.m.hidden) continue;
    for (uint32_t s = threadIdx.x / (kGathered / 16); s < slots; s += 2) {
      *reinterpret_cast<uint4*>(p.x + byte_in_panels(p.groups, span, to[s], piece % 8 * 16)) = own;
    }
  }
  if (p.m.shared_width == 0) return;
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) p.m.shared_p[row] = sigmoid(sum);
}

#ifdef SWY_HOPPER

// What tiles of both kernels have of their own.
__device__ inline GroupedTile scaled_tile(GroupedTile t, const GroupedMixture& p, const uint8_t* panels, uint32_t first,
                                          uint32_t width) {
  t.end = width / kByteGroup;
  t.x = panels + uint64_t{first} * kScaledPanel;
  t.span_stride = uint64_t{p.groups} * kScaledPanel;
  return t;
}

// A tile is a span of h.
struct ScaledGateUpBytes : GateUpWork<1> {
  static constexpr bool kRatios = true;
  static constexpr uint32_t kScales = 1;
  const ScaledByteMixture& b;

  __device__ ScaledGateUpBytes(const ScaledByteMixture& mixture, const GateUpWeights& weights, uint32_t part,
                               uint32_t of)
      : GateUpWork<1>{{}, mixture.g, weights, part, of}, b(mixture) {}
  __device__ GroupedTile tile(uint32_t i, uint4 of) const {
    return scaled_tile(GateUpWork<1>::tile(i, of), p, p.x, of.y, p.m.hidden);
  }
  __device__ const ScaledByteScales& scales() const { return b.x_scales; }
  // By way of bf16 in shared memory, so that 16 lanes have a row.
  template <int N>
  __device__ void store_bytes(ScaledBytePipe& pipe, const GroupedTile& tile, float (&acc)[N / 2]) const {
    constexpr uint32_t kAtOnce = kByteConsumers / 16;  // rows
    const uint32_t lane = threadIdx.x % 32, column = byte_row<kOrder>(0), span = tile.what.z / kSpan;
    const bool in = tile.what.z + column < tile.what.w;
    char* to = pipe.memory + pipe.staging + lane % 4 * 2 * kStagedRow + column * 2;
    pipe.wait_staging();
#pragma unroll
    for (int n = 0; n < N / 8; ++n) {
#pragma unroll
      for (uint32_t e = 0; e < 2; ++e) {
        const float v = quick_silu(acc[4 * n + e]) * acc[4 * n + 2 + e];
        *reinterpret_cast<__nv_bfloat16*>(to + (n * 8 + e) * kStagedRow) = __float2bfloat16(in ? v : 0.0f);
      }
    }
    named_barrier(1, kByteConsumers);
    const uint32_t rows = pipe.base + pipe.staging + lane % 16 * 16;
#pragma unroll 1
    for (uint32_t i = 0; i < (N + kAtOnce - 1) / kAtOnce; ++i) {  // the same number in all warps: they stay together
      const uint32_t r = i * kAtOnce + threadIdx.x / 16;
      put_row(rows + r * kStagedRow, tile.what.x * 8 + r, span, r < tile.groups * 8);
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(pipe.staging_empty());
  }
  // By 16 lanes, eight elements each. Whole warps call this. there: whether the row is.
  __device__ void put_row(uint32_t from, uint32_t row, uint32_t span, bool there) const {
    const uint32_t e = threadIdx.x % 16;
    uint32_t words[4];
    load_four_words(from, words);
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
    if (!there) return;
    *reinterpret_cast<uint32_t*>(p.h + byte_in_panels(p.groups, span, row, byte_place(e))) = eight.x;
    *reinterpret_cast<uint32_t*>(p.h + byte_in_panels(p.groups, span, row, byte_place(e) + 16)) = eight.y;
    if (e == 0) put_inverse(b.h_scales, span, row, scale.x, scale.y);
  }
};

struct ScaledDownBytes : DownWork<1> {
  static constexpr bool kRatios = false;
  static constexpr uint32_t kScales = 2;
  const ScaledByteMixture& b;

  __device__ ScaledDownBytes(const ScaledByteMixture& mixture, const DownWeights& weights, uint32_t part, uint32_t of)
      : DownWork<1>{{}, mixture.g, weights, part, of}, b(mixture) {}
  __device__ GroupedTile tile(uint32_t i, uint4 of) const {
    return scaled_tile(DownWork<1>::tile(i, of), p, p.h, of.y, of.x == p.m.experts ? p.m.shared_width : p.m.width);
  }
  __device__ const ScaledByteScales& scales() const { return b.h_scales; }
  template <int N>
  __device__ void store_bytes(const ScaledBytePipe&, const GroupedTile& tile, const float (&acc)[N / 2]) const {
    const uint32_t g = threadIdx.x % 32 / 4, column = tile.what.z + threadIdx.x / 32 * 16 + threadIdx.x % 4 * 4;
    const int left = column < p.m.hidden ? static_cast<int>(tile.what.y - g) : 0;  // rows from this thread's first
    uint16_t* to = p.pairs + (uint64_t{tile.what.x} * 8 + g) * p.m.hidden + column;
#pragma unroll
    for (int n = 0; n < N / 8; ++n, to += uint64_t{p.m.hidden} * 8) {
      uint32_t v[2];
      transpose_results(acc + 4 * n, v);
      if (n * 8 < left) *reinterpret_cast<uint2*>(to) = four_columns(v);
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
