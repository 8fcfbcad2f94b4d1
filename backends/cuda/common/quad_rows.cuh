// SPDX-License-Identifier: Apache-2.0
// Activations of several rows as integers, for products with four of them at a time (quads.cuh).
#pragma once

#include "device_code.cuh"

namespace gpu {

constexpr uint32_t kQuad = 4;  // rows

// Rows of activations as 12-bit integers, a scale for every 64.
struct QuadRows {
  uint4* words;    // [rows][groups][8]: for each lane of four, high bytes, then low ones
  float2* scales;  // [rows][groups]: a 16th of the scale; the bits of -128 times the sum of the integers
};

// One lane's part of 64 integers, and the values common to all of them.
struct Piece {
  uint4 words;
  float scale;
  uint32_t sum;  // of the integers
};

// The scale of elements of which the largest is `top`: 17 times an integer has 16 bits.
__device__ inline float scale_of_most(float top) { return fmaxf(top * (1.0f / 1919), 1e-37f); }

// Eight elements as integers, by their kind: odd elements, and 16 times the even one of each two less the odd one.
struct PieceBytes {
  uint32_t high_odd, low_odd, high_both, low_both, sum;  // sum: of the integers

  __device__ PieceBytes(const float (&v)[8], float inverse) {
    // Adding 1.5 * 2^23 leaves integers in the low bits. Adding 128 more rounds the high bytes; adding 16 * 16 - 128
    // does that for 16 x - y.
    constexpr float kEven = 12582912.0f + 16, kOdd = 12582912.0f + 128;
    constexpr uint32_t kFour =
        4u * (2u * 0x4b400000u + 16u + 128u);  // the sum of these constants over four elements of each kind
    constexpr uint32_t kSigned = 0x80808080u;
    uint32_t q[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) q[j] = __float_as_uint(fmaf(v[j], inverse, j % 2 == 0 ? kEven : kOdd));
    const uint32_t both[4] = {16 * q[0] - q[1], 16 * q[2] - q[3], 16 * q[4] - q[5], 16 * q[6] - q[7]};
    const auto bytes = [](uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t which) {
      return __byte_perm(__byte_perm(a, b, which), __byte_perm(c, d, which), 0x5410);
    };
    high_odd = bytes(q[1], q[3], q[5], q[7], 0x0051);
    low_odd = bytes(q[1], q[3], q[5], q[7], 0x0040) ^ kSigned;
    high_both = bytes(both[0], both[1], both[2], both[3], 0x0051);
    low_both = bytes(both[0], both[1], both[2], both[3], 0x0040) ^ kSigned;
    sum = (q[0] + q[1]) + (q[2] + q[3]) + (q[4] + q[5]) + (q[6] + q[7]) - kFour;
  }
};

// Eight neighbouring lanes pass 64 elements, eight each; lane i of them gets piece i. A piece has bytes of one kind,
// high or low: of the odd elements of both halves of the 64 (eight each: x, y), and of 16 times the even element less
// the odd one of each two (z, w).
__device__ inline Piece make_piece(const float (&v)[8]) {
  const bool second = threadIdx.x / 4 % 2 != 0;  // the second half of the 64, and the low bytes
  float top = fmaxf(fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3]))),
                    fmaxf(fmaxf(fabsf(v[4]), fabsf(v[5])), fmaxf(fabsf(v[6]), fabsf(v[7]))));
#pragma unroll
  for (int d = 1; d < 8; d *= 2) top = fmaxf(top, __shfl_xor_sync(kAll, top, d));
  const float scale = scale_of_most(top);
  const PieceBytes bytes(v, reciprocal(scale));
  // The lane 4 further has the other half, and needs the other bytes.
  const uint32_t got_odd = __shfl_xor_sync(kAll, second ? bytes.high_odd : bytes.low_odd, 4);
  const uint32_t got_both = __shfl_xor_sync(kAll, second ? bytes.high_both : bytes.low_both, 4);
  uint32_t sum = bytes.sum;
#pragma unroll
  for (int d = 1; d < 8; d *= 2) sum += __shfl_xor_sync(kAll, sum, d);
  return {make_uint4(second ? got_odd : bytes.high_odd, second ? bytes.low_odd : got_odd,
                     second ? got_both : bytes.high_both, second ? bytes.low_both : got_both),
          scale, sum};
}
// Writes a piece to group `group`, of `groups`, of a row.
__device__ inline void put_piece(const QuadRows& to, const Piece& piece, uint32_t row, uint32_t groups,
                                 uint32_t group) {
  const uint64_t at = uint64_t{row} * groups + group;
  to.words[at * 8 + threadIdx.x % 8] = piece.words;
  if (threadIdx.x % 8 != 0) return;
  to.scales[at] = make_float2(piece.scale * (1.0f / 16), __int_as_float(-128 * static_cast<int>(piece.sum)));
}

}  // namespace gpu
