// SPDX-License-Identifier: Apache-2.0
// Kernels of MOE for many rows on Hopper with activations as bytes (bytes.cuh): those of moe_grouped.cuh, but for
//
//   gather_bytes   moe_byte_rows.cuh
//   gate_up_bytes  h = silu(gate) * up, in bf16
//   h_bytes        moe_byte_rows.cuh
//   down_bytes
#pragma once

#include "grouped/bytes.cuh"
#include "moe_byte_rows.cuh"

namespace gpu {

#ifdef SWY_HOPPER

struct GateUpBytes : GateUpWork<1> {
  const ByteMixture& b;

  __device__ GateUpBytes(const ByteMixture& mixture, const GateUpWeights& weights, uint32_t part, uint32_t of)
      : GateUpWork<1>{{}, mixture.g, weights, part, of}, b(mixture) {}
  __device__ GroupedTile tile(uint32_t i, uint4 of) const {
    GroupedTile t = GateUpWork<1>::tile(i, of);
    t.end = byte_stages(p.m.hidden);
    t.x = p.x + uint64_t{of.y} * kBytePanel;
    t.span_stride = uint64_t{p.groups} * kBytePanel;
    return t;
  }
  __device__ const ByteScales& scales() const { return b.x_scales; }
  __device__ void prefetch(const GroupedTile&) const {}
  __device__ uint32_t first_row(const GroupedTile& t) const { return t.what.x * 8; }
  template <int N>
  __device__ void store_bytes(const GroupedTile& tile, const ByteSums<N>& sums) const {
    const uint32_t g = threadIdx.x % 32 / 4, column = tile.what.z + threadIdx.x / 32 * 8 + threadIdx.x % 4 * 2;
    const int left = column < tile.what.w ? static_cast<int>(tile.what.y - g) : 0;  // rows from this thread's first
    uint16_t* to = b.h + (uint64_t{tile.what.x} * 8 + g) * b.h_width + column;
#pragma unroll
    for (int n = 0; n < N / 8; ++n, to += uint64_t{b.h_width} * 8) {
      float v[4];
      sums.four(n, v);
      const __nv_bfloat162 two = __floats2bfloat162_rn(fast_silu(v[0]) * v[2], fast_silu(v[1]) * v[3]);
      const uint32_t bits = transpose(*reinterpret_cast<const uint32_t*>(&two));
      if (n * 8 < left) *reinterpret_cast<uint32_t*>(to) = bits;
    }
  }
  __device__ void finish() const {}
};

struct DownBytes : DownWork<1> {
  const ByteMixture& b;

  __device__ DownBytes(const ByteMixture& mixture, const DownWeights& weights, uint32_t part, uint32_t of)
      : DownWork<1>{{}, mixture.g, weights, part, of}, b(mixture) {}
  __device__ GroupedTile tile(uint32_t i, uint4 of) const {
    GroupedTile t = DownWork<1>::tile(i, of);
    t.end = byte_stages(of.x == p.m.experts ? p.m.shared_width : p.m.width);
    t.x = p.h + uint64_t{of.y} * kBytePanel;
    t.span_stride = uint64_t{p.groups} * kBytePanel;
    return t;
  }
  __device__ const ByteScales& scales() const { return b.h_scales; }
  __device__ void prefetch(const GroupedTile&) const {}
  __device__ uint32_t first_row(const GroupedTile& t) const { return t.what.x * 8; }
  template <int N>
  __device__ void store_bytes(const GroupedTile& tile, const ByteSums<N>& sums) const {
    const uint32_t g = threadIdx.x % 32 / 4, column = tile.what.z + threadIdx.x / 32 * 16 + threadIdx.x % 4 * 4;
    const int left = column < p.m.hidden ? static_cast<int>(tile.what.y - g) : 0;  // rows from this thread's first
    uint16_t* to = p.pairs + (uint64_t{tile.what.x} * 8 + g) * p.m.hidden + column;
#pragma unroll
    for (int n = 0; n < N / 8; ++n, to += uint64_t{p.m.hidden} * 8) {
      float of[4];
      sums.four(n, of);
      uint32_t v[2];
      transpose_results(of, v);
      if (n * 8 >= left) continue;
      *reinterpret_cast<uint2*>(to) = four_columns(v);
    }
  }
};

#endif

__global__ void __launch_bounds__(kByteThreads, 1)
    gate_up_bytes(const __grid_constant__ ByteMixture b, const __grid_constant__ GateUpWeights w, uint32_t parts,
                  uint32_t steps, const ByteShape shape) {
#ifdef SWY_HOPPER
  extern __shared__ __align__(1024) char memory_of_bytes[];
  product_of_bytes(GateUpBytes(b, w, parts, steps), shape, memory_of_bytes);
#endif
}

__global__ void __launch_bounds__(kByteThreads, 1)
    down_bytes(const __grid_constant__ ByteMixture b, const __grid_constant__ DownWeights w, uint32_t parts,
               uint32_t steps, const ByteShape shape) {
#ifdef SWY_HOPPER
  extern __shared__ __align__(1024) char memory_of_bytes[];
  product_of_bytes(DownBytes(b, w, parts, steps), shape, memory_of_bytes);
#endif
}

}  // namespace gpu
