// SPDX-License-Identifier: Apache-2.0
// Products of 16 warps with slices of one row and boxes of weights (boxes.cuh explains the arithmetic), with few
// instructions between the arrival of the activations and the sum.
//
// ldmatrix reads rows of a box in the order of the first operand: lane 4 g + t gets rows g and g + 8 of a tile, and of
// each 64 columns 8 from 8 t and 8 from 32 + 8 t. The sums of a tile's groups overwrite the tile's own memory, as
// [group][row]; the block adds them up once.
#pragma once

#include "boxes.cuh"
#include "pin.cuh"
#include "quad_rows.cuh"

namespace gpu {

constexpr uint32_t kSliceWarps = 16, kSliceThreads = 32 * kSliceWarps;

constexpr uint32_t kShareStride = 24;  // floats from one group's sums of a tile to the next's: no two lanes in a bank

// A slice of activations as the second operand: b[group][0] multiplies bytes of the weight as they are, b[group][1]
// their low halves. Column 2 group has high bytes, the next one low bytes; other columns are 0. `scale` and `sum`
// belong to group t of lane 4 g + t: the scale of 16 times the product, and 16 times the sum of the integers.
struct Operand {
  uint32_t b[4][2][2];
  float scale;
  int sum;
};

// Lane i passes the piece of elements 8 i to 8 i + 7. Results of products are multiplied by `factor`.
__device__ inline Operand make_operand(const Piece& piece, float factor) {
  const uint32_t lane = threadIdx.x % 32, t = lane % 4;
  const uint32_t odd[2] = {piece.words.x, piece.words.y}, two[2] = {piece.words.z, piece.words.w};
  Operand x;
#pragma unroll
  for (uint32_t group = 0; group < 4; ++group) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      x.b[group][0][half] = lane / 8 == group ? odd[half] : 0;
      x.b[group][1][half] = lane / 8 == group ? two[half] : 0;
    }
  }
  x.scale = __shfl_sync(kAll, piece.scale, 8 * t) * (factor * (1.0f / 16));
  x.sum = 16 * static_cast<int>(__shfl_sync(kAll, piece.sum, 8 * t));
  return x;
}
__device__ inline Operand make_operand(const float (&v)[8], float factor) {
  return make_operand(make_piece(v), factor);
}

// ---- shared memory by its address, computed before the wait and kept (pin.cuh)

__device__ inline float shared_float(uint32_t at) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at) : "memory");
  return v;
}
__device__ inline float shared_half(uint32_t at) {
  uint16_t v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(at) : "memory");
  return half_bits(v);
}
__device__ inline void put_float(uint32_t at, float v) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory");
}

// ---- products

// Where this lane finds scales, in bytes: of row g of a tile and its group; of row g + 8; of the next tile; offsets.
struct ScalePlaces {
  uint32_t at, eight, next, offsets;

  // `scales`: of the first tile.
  __device__ ScalePlaces(const void* scales, const Weight& w, uint32_t slice, uint32_t rows, uint32_t next_tile) {
    const TileScales all(scales, w, slice, rows, next_tile);
    const uint32_t lane = threadIdx.x % 32;
    at = shared_at(all.scales + lane / 4 * all.stride + (lane % 4 >> all.shift));
    eight = 16 * all.stride, next = 2 * all.next, offsets = 2 * all.offsets;
    pin(at), pin(eight), pin(next), pin(offsets);
  }
};
template <int N>
struct LaneScales {
  float of[N][2];

  __device__ void load(const ScalePlaces& from, uint32_t tile) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const uint32_t at = from.at + (tile + i) * from.next;
      of[i][0] = shared_half(at), of[i][1] = shared_half(at + from.eight);
    }
  }
};

// Where this lane's row of a box begins for ldmatrix; group k of it is at this address with 32 k exclusive-ored.
__device__ inline uint32_t lane_of_box() {
  const uint32_t lane = threadIdx.x % 32;
  return lane % 16 * kBoxBytes + ((lane / 16) ^ (lane % 8)) * 16;
}
// Where this lane writes its share of row g of a tile.
__device__ inline uint32_t share_of_lane() {
  const uint32_t lane = threadIdx.x % 32;
  return (lane % 4 * kShareStride + lane / 4) * 4;
}
__device__ inline void read_rows(uint32_t at, uint32_t (&a)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(at)
               : "memory");
}

// N tiles from `tiles`, a multiple of 1024, times a slice; the shares of the first `mine` tiles go to the tiles' own
// memory. `tile`: the first one's index among those of `places`. `in_box` and `share`: from lane_of_box and
// share_of_lane.
template <int N>
__device__ inline void multiply_slice(uint32_t tiles, uint32_t in_box, uint32_t share, const LaneScales<N>& scales,
                                      const ScalePlaces& places, uint32_t tile, const Operand& x, uint32_t mine) {
  const int start = places.offsets != 0 ? 0 : -8 * x.sum;
  int c[N][4], d[N][4] = {};
#pragma unroll
  for (int i = 0; i < N; ++i) c[i][0] = 0, c[i][1] = start, c[i][2] = 0, c[i][3] = start;
#pragma unroll
  for (uint32_t group = 0; group < 4; ++group) {
    const uint32_t at = tiles + (in_box ^ (32 * group));
#pragma unroll
    for (int i = 0; i < N; ++i) {
      uint32_t a[4];
      constexpr uint32_t kLow = 0x0f0f0f0fu;
      read_rows(at + i * kTileBytes, a);
      multiply_bytes(c[i], a[0], a[1], a[2], a[3], x.b[group][0]);
      multiply_bytes(N == 1 ? d[i] : c[i], a[0] & kLow, a[1] & kLow, a[2] & kLow, a[3] & kLow, x.b[group][1]);
    }
  }
  float v[N][2];
#pragma unroll
  for (int i = 0; i < N; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (N == 1) c[i][2 * j] += d[i][2 * j], c[i][2 * j + 1] += d[i][2 * j + 1];
      v[i][j] = static_cast<float>(c[i][2 * j] * 256 + c[i][2 * j + 1]) * scales.of[i][j];
    }
  }
  if (places.offsets != 0) {
#pragma unroll 1
    for (int k = 0; k < 2 * N; ++k) {
      const uint32_t from = places.at + (tile + k / 2) * places.next + k % 2 * places.eight;
      const float more = shared_half(from + places.offsets) * static_cast<float>(x.sum);
#pragma unroll
      for (int i = 0; i < 2 * N; ++i) v[i / 2][i % 2] += i == k ? more : 0.0f;
    }
  }
  __syncwarp();  // every lane has read the tile
#pragma unroll
  for (uint32_t i = 0; i < N; ++i) {
    if (i < mine) {
#pragma unroll
      for (uint32_t j = 0; j < 2; ++j) put_float(tiles + share + i * kTileBytes + 32 * j, v[i][j] * x.scale);
    }
  }
}

// Writes shares of 0 for slices that do not exist.
__device__ inline void clear_shares(uint32_t tiles, uint32_t share, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    put_float(tiles + share + i * kTileBytes, 0), put_float(tiles + share + i * kTileBytes + 32, 0);
  }
}
// Where a thread finds the shares of row threadIdx.x / 4 of a slice's tiles, of group threadIdx.x % 4.
__device__ inline uint32_t shares_of_row(uint32_t tiles) {
  const uint32_t row = threadIdx.x / 4;
  return tiles + row / kTileRows * kTileBytes + (threadIdx.x % 4 * kShareStride + row % kTileRows) * 4;
}
// The sum of a row's shares, `apart` bytes from one slice to the next, over as many neighbouring threads as have shares
// of one row of the activations; all threads of the row call this.
template <uint32_t kSlices, uint32_t kThreads = 4>
__device__ inline float join_shares(uint32_t at, uint32_t apart) {
  float v[kSlices];
#pragma unroll
  for (uint32_t k = 0; k < kSlices; ++k) v[k] = shared_float(at + k * apart);
  float sum[2] = {};
#pragma unroll
  for (uint32_t k = 0; k < kSlices; ++k) sum[k % 2] += v[k];
  float all = sum[0] + sum[1];
#pragma unroll
  for (uint32_t d = 1; d < kThreads; d *= 2) all += __shfl_xor_sync(kAll, all, d);
  return all;
}

// 1 over the root of the mean square, from the sums of squares of all warps and 1 over the number of elements.
template <uint32_t kWarps>
__device__ inline float inverse_root(const float (&squares)[kWarps], float per_width, float eps) {
  float total = 0;
#pragma unroll
  for (uint32_t i = 0; i < kWarps / 4; ++i) {
    const float4 s = reinterpret_cast<const float4*>(squares)[i];
    total += (s.x + s.y) + (s.z + s.w);
  }
  float root;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(fmaf(total, per_width, eps)));
  return root;
}

}  // namespace gpu
