// SPDX-License-Identifier: Apache-2.0
// slices.cuh for one to four rows that the kernel in front has written as integers (half_rows.cuh). A group of 64
// columns has two scales, so each half of it has products of its own. One product (m16n8k32) multiplies bytes of the
// weight as they are and, as further columns, their low halves.
//
// The eight columns of the second operand are high and low bytes of kRows rows, of 4 / kRows groups: there are kRows
// sums. Lane 4 g + t has, of sum s, row g (and g + 8) of a tile, row t / kEach of the activations, and group
// s kEach + t % kEach.
#pragma once

#include "half_rows.cuh"
#include "slices_pair.cuh"

namespace gpu {

// Adds the product of 32 columns of a tile. Those of half a group are read by themselves: lanes 0 to 15 pass their
// rows' addresses.
__device__ inline void multiply_half(int (&c)[4], uint32_t at, const uint32_t (&b)[2]) {
  constexpr uint32_t kLow = 0x0f0f0f0fu;
  uint32_t a[2];
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(a[0]), "=r"(a[1])
               : "r"(at)
               : "memory");
  multiply_bytes(c, a[0], a[1], a[0] & kLow, a[1] & kLow, b);
}
__device__ inline float4 shared_four(uint32_t at) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(at)
               : "memory");
  return v;
}

template <uint32_t kRows>
struct HalvesOperand {
  static constexpr uint32_t kEach = 4 / kRows;  // groups of a sum
  static constexpr bool kHeld = kRows == 1;     // whether lanes hold their sums' scales
  uint32_t b[4][2][2];                          // [group][half][bytes as they are, low halves]
  float4 of;                                    // scale and 16 times the sum of integers, of both halves
  uint32_t of_row;                              // or where this lane finds those of its first sum in shared memory

  // Takes the words of lane / 8's row, w[s] of its group of sum s.
  __device__ void take(const uint4 (&w)[kRows]) {
#pragma unroll
    for (uint32_t group = 0; group < 4; ++group) {
      const bool mine = threadIdx.x % 32 / 8 % kEach == group % kEach;
      const uint4 v = w[group / kEach];
      b[group][0][0] = mine ? v.x : 0, b[group][0][1] = mine ? v.y : 0;
      b[group][1][0] = mine ? v.z : 0, b[group][1][1] = mine ? v.w : 0;
    }
  }
};

// One tile times a slice of all rows; the arguments are those of multiply_pair.
template <uint32_t kRows>
__device__ inline void multiply_halves(uint32_t at, uint32_t in_box, uint32_t share, const PairPlaces& places,
                                       uint32_t tile, const HalvesOperand<kRows>& x) {
  constexpr uint32_t kEach = HalvesOperand<kRows>::kEach;
  float v[2] = {};
#pragma unroll
  for (uint32_t s = 0; s < kRows; ++s) {
    const float4 of = HalvesOperand<kRows>::kHeld ? x.of : shared_four(x.of_row + 16 * kEach * s);
    const int sums[2] = {__float_as_int(of.y), __float_as_int(of.w)};
    int c[2][4] = {};
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      if (places.offsets == 0) c[half][1] = -8 * sums[half], c[half][3] = -8 * sums[half];
    }
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) {
      const uint32_t group = s * kEach + i;
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        multiply_half(c[half], at + (in_box ^ (32 * group + 16 * half)), x.b[group][half]);
      }
    }
    const uint32_t from = places.at + tile * places.next + 2 * ((s * kEach + threadIdx.x % kEach) >> places.shift);
#pragma unroll
    for (uint32_t j = 0; j < 2; ++j) {
      const float first = static_cast<float>(c[0][2 * j] * 256 + c[0][2 * j + 1]);
      const float second = static_cast<float>(c[1][2 * j] * 256 + c[1][2 * j + 1]);
      v[j] = fmaf(fmaf(first, of.x, second * of.z), shared_half(from + j * places.eight), v[j]);
      if (places.offsets != 0) {
        const float all = fmaf(static_cast<float>(sums[0]), of.x, static_cast<float>(sums[1]) * of.z);
        v[j] = fmaf(all, shared_half(from + j * places.eight + places.offsets), v[j]);
      }
    }
  }
  __syncwarp();  // every lane has read the tile
  put_float(at + share, v[0]), put_float(at + share + 32, v[1]);
}

// The same of four rows, if the scales are plain: by fewer instructions.
__device__ inline void multiply_plain_halves(uint32_t at, uint32_t in_box, uint32_t share, const PairPlaces& places,
                                             uint32_t tile, const HalvesOperand<kQuad>& x) {
  float v[2] = {};
  const PlainScales scales(places, tile);
#pragma unroll
  for (uint32_t s = 0; s < kQuad; ++s) {
    const float4 of = shared_four(x.of_row + 16 * s);
    const int start[2] = {-8 * __float_as_int(of.y), -8 * __float_as_int(of.w)};
    float sum[2][2];
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      int c[4] = {};
      multiply_half(c, at + (in_box ^ (32 * s + 16 * half)), x.b[s][half]);
#pragma unroll
      for (uint32_t j = 0; j < 2; ++j) {
        sum[half][j] = static_cast<float>(c[2 * j] * 256 + c[2 * j + 1] + start[half]);
      }
    }
#pragma unroll
    for (uint32_t j = 0; j < 2; ++j) v[j] = fmaf(fmaf(sum[0][j], of.x, sum[1][j] * of.z), scales.get(j, s), v[j]);
  }
  __syncwarp();  // every lane has read the tile
  put_float(at + share, v[0]), put_float(at + share + 32, v[1]);
}

}  // namespace gpu
