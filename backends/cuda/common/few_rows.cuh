// SPDX-License-Identifier: Apache-2.0
// Up to 64 rows of activations in bf16, in the order in which linear/linear_few.cuh multiplies them, and the sums that
// it needs. A kernel in front can write them, so that no block of the projection has to convert them.
#pragma once

#include "device_code.cuh"

namespace gpu {

constexpr uint32_t kFewGroup = 64;                   // columns
constexpr uint32_t kFewBytes = 1024, kFewSums = 64;  // of eight rows of a group, and of their sums

// In memory, of whole groups: the rows; then `low`, what rounding left of them; and for each group minus 136 times the
// sum of each row, or minus 128 times for weights with offsets.
struct FewRows {
  char* words;      // [groups][eights][2][32 lanes] of 16 bytes; null: not written
  char* low;        // likewise; null: not wanted
  float* sums;      // [groups][eights][16]
  uint32_t eights;  // of rows
  float times;      // -136 or -128

  static uint64_t bytes(uint32_t eights, uint32_t width, bool with_low) {
    return uint64_t{width / kFewGroup} * eights * (kFewBytes * (with_low ? 2 : 1) + kFewSums);
  }
  static FewRows in(char* memory, uint32_t eights, uint32_t width, bool with_low, bool affine) {
    const uint64_t one = uint64_t{width / kFewGroup} * eights * kFewBytes;
    char* sums = memory + one * (with_low ? 2 : 1);
    return {memory, with_low ? memory + one : nullptr, reinterpret_cast<float*>(sums), eights,
            affine ? -128.0f : -136.0f};
  }

  // Where the eight elements of row m from column 8 `unit` of a group on are, in bytes: elements i and i + 4 together.
  static __host__ __device__ uint32_t place(uint32_t eight, uint32_t unit, uint32_t m) {
    return (eight * 2 + unit % 2) * 512 + (m % 8 * 4 + unit / 2 % 4) * 16;
  }
  // Where the sums of row m are: two lanes read them.
  static __host__ __device__ uint32_t sum_place(uint32_t eight, uint32_t m) {
    return eight * 16 + m % 8 / 2 * 4 + m % 2;
  }
};

// Two numbers rounded to bf16, and the values of the rounded ones.
struct RoundedPair {
  uint32_t bits;
  float low, high;

  __device__ RoundedPair(float a, float b) {
    const __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
    bits = *reinterpret_cast<const uint32_t*>(&v);
    low = __uint_as_float(bits << 16), high = __uint_as_float(bits & 0xffff0000u);
  }
};

// Eight elements in their place's order. kLow: also what rounding left.
template <bool kLow>
struct RoundedEight {
  uint4 words, low;
  float sum;  // of the rounded ones

  __device__ explicit RoundedEight(const float (&v)[8]) : low(), sum(0) {
    uint32_t a[4], b[4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const RoundedPair pair(v[i], v[i + 4]);
      a[i] = pair.bits;
      if (kLow) b[i] = RoundedPair(v[i] - pair.low, v[i + 4] - pair.high).bits;
      sum += pair.low + pair.high;
    }
    words = make_uint4(a[0], a[1], a[2], a[3]);
    if (kLow) low = make_uint4(b[0], b[1], b[2], b[3]);
  }
};

// Writes the four elements of row m from column 4 `four` on. 16 neighbouring lanes have a group, and two exchange what
// the order needs; all lanes of a warp call this.
__device__ inline void put_few(const FewRows& to, uint32_t m, uint32_t four, const float (&v)[4]) {
  const bool upper = four % 2 != 0;  // of eight elements
  uint32_t words[2], low[2];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float got = __shfl_xor_sync(kAll, upper ? v[i] : v[i + 2], 1);
    const float a = upper ? got : v[i], b = upper ? v[i + 2] : got;
    const RoundedPair pair(a, b);
    words[i] = pair.bits, low[i] = RoundedPair(a - pair.low, b - pair.high).bits;
    sum += pair.low + pair.high;
  }
  const uint32_t unit = four / 2, first = unit / 8 * to.eights + m / 8;
  const uint32_t at = FewRows::place(first, unit, m) + (upper ? 8 : 0);
  *reinterpret_cast<uint2*>(to.words + at) = make_uint2(words[0], words[1]);
  if (to.low != nullptr) *reinterpret_cast<uint2*>(to.low + at) = make_uint2(low[0], low[1]);
#pragma unroll
  for (int d = 1; d < 16; d *= 2) sum += __shfl_xor_sync(kAll, sum, d);
  float* sums = to.sums + FewRows::sum_place(first, m);
  if (four % 16 == 0) sums[0] = sums[2] = to.times * sum;
}

}  // namespace gpu
