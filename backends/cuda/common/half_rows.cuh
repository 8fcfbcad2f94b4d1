// SPDX-License-Identifier: Apache-2.0
// Rows of activations as integers with a scale for every 32 columns, half of what a scale of a weight is for. Blocks of
// the delta rule and of gate_up have so many columns, and eight lanes of attention; they write these rows for the
// output projection and for `down`.
#pragma once

#include "quad_rows.cuh"

namespace gpu {

constexpr uint32_t kHalfGroup = 32;  // columns

struct HalfRows {
  uint2* words;    // [rows][groups of 64][8][halves]: as lane i of eight has them in quad_rows.cuh
  float2* scales;  // [rows][groups][halves]: a 16th of the scale; the bits of 16 times the sum of the integers

  // In `memory`, of at least 9/4 bytes for each of `columns` columns of so many rows.
  __host__ __device__ static HalfRows in(void* memory, uint64_t rows, uint64_t columns) {
    auto* words = static_cast<uint2*>(memory);
    return {words, reinterpret_cast<float2*>(words + rows * columns / 4)};
  }
  // Writes what lane i of eight has of a half: the high bytes of eight columns or, as lane i + 4, the low ones.
  // `first`: the first half of its group.
  __device__ void put_words(uint64_t first, uint32_t half, uint32_t i, const PieceBytes& bytes) const {
    const bool low = i >= 4;
    words[first * 8 + i * 2 + half] =
        make_uint2(low ? bytes.low_odd : bytes.high_odd, low ? bytes.low_both : bytes.high_both);
  }
  // `sum`: of the integers of a half.
  __device__ void put_scale(uint64_t half, float scale, uint32_t sum) const {
    scales[half] = make_float2(scale * (1.0f / 16), __uint_as_float(16 * sum));
  }
};

// Writes columns 32 `half` to 32 `half` + 31 of a row of `columns`: lane i passes eight of them, from 8 (i % 4) on.
// Their scale is multiplied by `factor`. All lanes of a warp call this.
__device__ inline void put_half(const HalfRows& to, const float (&v)[8], uint64_t row, uint32_t columns, uint32_t half,
                                float factor = 1.0f) {
  const uint32_t lane = threadIdx.x % 32;
  float top = fmaxf(fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3]))),
                    fmaxf(fmaxf(fabsf(v[4]), fabsf(v[5])), fmaxf(fabsf(v[6]), fabsf(v[7]))));
  top = fmaxf(top, __shfl_xor_sync(kAll, top, 1));
  top = fmaxf(top, __shfl_xor_sync(kAll, top, 2));
  const float scale = scale_of_most(top);
  const PieceBytes bytes(v, reciprocal(scale));
  uint32_t sum = bytes.sum;
  sum += __shfl_xor_sync(kAll, sum, 1);
  sum += __shfl_xor_sync(kAll, sum, 2);
  const uint64_t first = row * (columns / kHalfGroup) + half / 2 * 2;  // of the group
  if (lane < 8) to.put_words(first, half % 2, lane, bytes);
  if (lane == 0) to.put_scale(first + half % 2, scale * factor, sum);
}

// Writes the four columns of a row that this lane passes, from element `at` of all rows on. Eight neighbouring lanes,
// which all call this, have 32 columns.
__device__ inline void put_four(const HalfRows& to, const float4& v, uint64_t at) {
  const uint32_t lane = threadIdx.x % 32, eight_lanes = 0xffu << (lane & 24);
  const auto other = [&](auto x, int d) { return __shfl_xor_sync(eight_lanes, x, d); };
  float top = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
#pragma unroll
  for (int d = 1; d < 8; d *= 2) top = fmaxf(top, other(top, d));
  const float scale = scale_of_most(top);
  // Two lanes have eight columns: one writes their high bytes, the other one the low ones.
  const bool second = lane % 2 != 0;
  const float4 w = make_float4(other(v.x, 1), other(v.y, 1), other(v.z, 1), other(v.w, 1));
  const float4 a = second ? w : v, b = second ? v : w;
  const float eight[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  const PieceBytes bytes(eight, reciprocal(scale));
  uint32_t sum = bytes.sum;
  sum += other(sum, 2);
  sum += other(sum, 4);
  const uint64_t half = at / kHalfGroup;
  to.put_words(half / 2 * 2, half % 2, at % kHalfGroup / 8 + (second ? 4 : 0), bytes);
  if (lane % 8 == 0) to.put_scale(half, scale, sum);
}

}  // namespace gpu
