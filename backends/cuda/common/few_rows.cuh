// SPDX-License-Identifier: Apache-2.0
// Up to 64 rows of activations in bf16, in the order in which linear/linear_few.cuh multiplies them, and the sums that
// it needs. A kernel in front can write them, so that no block of the projection has to convert them.
#pragma once

#include "device_code.cuh"

namespace gpu {

constexpr uint32_t kFewGroup = 64;                   // columns
constexpr uint32_t kFewBytes = 1024, kFewSums = 64;  // of eight rows of a group, and of their sums

// A nibble in the lowest bits of a bf16 is that number times 2^-133, in the next four bits 16 times as much. Products
// take even columns from there and odd ones from here, so rows have 1/16 of odd columns. Rows are also scaled up, so
// that such products are not rounded in fp32: results may be as small as 2^-57, and elements as large as 2^57.
constexpr float kFewUp = 0x1p64f, kFewUnit = 0x1p-133f;
__host__ __device__ constexpr float few_up(uint32_t column) { return column % 2 == 0 ? kFewUp : kFewUp / 16; }
__host__ __device__ constexpr float few_times(bool affine) { return affine ? kFewUnit : -8 * kFewUnit; }

// In memory, of whole groups: the rows, scaled; then `low`, what rounding left of them; and for each group the sum of
// each row's elements times kFewUp and few_times.
struct FewRows {
  char* words;      // [groups][eights] of kFewBytes; null: not written
  char* low;        // likewise; null: not wanted
  float* sums;      // [groups][eights][16]
  uint32_t eights;  // of rows
  float times;      // few_times

  static uint64_t bytes(uint32_t eights, uint32_t width, bool with_low) {
    return uint64_t{width / kFewGroup} * eights * (kFewBytes * (with_low ? 2 : 1) + kFewSums);
  }
  static FewRows in(char* memory, uint32_t eights, uint32_t width, bool with_low, bool affine) {
    const uint64_t one = uint64_t{width / kFewGroup} * eights * kFewBytes;
    char* sums = memory + one * (with_low ? 2 : 1);
    return {memory, with_low ? memory + one : nullptr, reinterpret_cast<float*>(sums), eights, few_times(affine)};
  }

  // Where word i of the eight elements of row m from column 8 `unit` of a group on is, in bytes. Words are elements
  // 0 4, 2 6, 1 5, 3 7. Eight rows are 128 bytes each, whose pieces of 16 are permuted as wgmma's second operand is.
  static __host__ __device__ uint32_t place(uint32_t eight, uint32_t unit, uint32_t m, uint32_t i) {
    return eight * kFewBytes + m % 8 * 128 + ((unit % 2 * 4 + i) ^ m % 8) * 16 + unit / 2 % 4 * 4;
  }
  static __device__ void put(char* to, uint32_t eight, uint32_t unit, uint32_t m, const uint4& words) {
    const uint32_t w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) *reinterpret_cast<uint32_t*>(to + place(eight, unit, m, i)) = w[i];
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
  float sum;  // of the rounded ones times kFewUp

  __device__ explicit RoundedEight(const float (&v)[8]) : low(), sum(0) {
    uint32_t a[4], b[4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float up = few_up(i), first = v[i] * up, second = v[i + 4] * up;
      const RoundedPair pair(first, second);
      a[i] = pair.bits;
      if (kLow) b[i] = RoundedPair(first - pair.low, second - pair.high).bits;
      sum = fmaf(pair.low + pair.high, kFewUp / up, sum);
    }
    words = make_uint4(a[0], a[2], a[1], a[3]);
    if (kLow) low = make_uint4(b[0], b[2], b[1], b[3]);
  }
};

// Writes the four elements of row m from column 4 `four` on. 16 neighbouring lanes have a group, and two exchange what
// the order needs; all lanes of a warp call this.
__device__ inline void put_few(const FewRows& to, uint32_t m, uint32_t four, const float (&v)[4]) {
  const bool upper = four % 2 != 0;  // of eight elements
  const uint32_t unit = four / 2, first = unit / 8 * to.eights + m / 8;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float got = __shfl_xor_sync(kAll, upper ? v[i] : v[i + 2], 1), up = few_up(i);
    const float a = (upper ? got : v[i]) * up, b = (upper ? v[i + 2] : got) * up;
    const RoundedPair pair(a, b);
    const uint32_t at = FewRows::place(first, unit, m, 2 * i + upper);
    *reinterpret_cast<uint32_t*>(to.words + at) = pair.bits;
    if (to.low != nullptr) {
      *reinterpret_cast<uint32_t*>(to.low + at) = RoundedPair(a - pair.low, b - pair.high).bits;
    }
    sum = fmaf(pair.low + pair.high, kFewUp / up, sum);
  }
#pragma unroll
  for (int d = 1; d < 16; d *= 2) sum += __shfl_xor_sync(kAll, sum, d);
  float* sums = to.sums + FewRows::sum_place(first, m);
  if (four % 16 == 0) sums[0] = sums[2] = to.times * sum;
}

}  // namespace gpu
