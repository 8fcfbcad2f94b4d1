// SPDX-License-Identifier: Apache-2.0
// slices.cuh for four rows of activations: the eight columns of a product's second operand are the high and low bytes
// of all rows, of one group of 64. A slice has four groups, so there are four sums, each scaled by itself.
//
// Lane 4 g + t has, of every sum, row g (and g + 8) of a tile, and row t of the activations.
#pragma once

#include <type_traits>

#include "slices_pair.cuh"

namespace gpu {

// In shared memory, of a slice: pieces of two rows at a time, then what every lane needs of all rows.
struct alignas(16) QuadMemory {
  uint4 words[2][32];
  float2 of_group[kQuad][4];  // [row][group]: a 16th of the scale, and 16 times the sum of the integers
};

struct QuadOperand {
  uint32_t b[4][2][2];  // as in Operand
  uint32_t of_group;    // where this lane's row has its scales and sums
};

// Makes the operand of a slice. Rows 2 i and 2 i + 1 are those of round i; `mine`(i) says whether this warp has made
// their pieces, and piece(i, m) gives them. meet() lets the slice's warps wait for each other.
template <class Mine, class Pieces, class Meet>
__device__ inline QuadOperand make_quad_operand(QuadMemory& memory, const Mine& mine, const Pieces& piece,
                                                const Meet& meet) {
  const uint32_t lane = threadIdx.x % 32;
  QuadOperand x;
#pragma unroll
  for (uint32_t round = 0; round < 2; ++round) {
    if (round != 0) meet();  // the previous round's pieces have been read
    if (mine(round)) {
#pragma unroll
      for (uint32_t m = 0; m < 2; ++m) {
        const Piece p = piece(round, m);
        memory.words[m][lane] = p.words;
        if (lane % 8 != 0) continue;
        const int sum = 16 * static_cast<int>(p.sum);
        memory.of_group[2 * round + m][lane / 8] = make_float2(p.scale * (1.0f / 16), __int_as_float(sum));
      }
    }
    meet();
    if (lane / 16 == round) {
#pragma unroll
      for (uint32_t group = 0; group < 4; ++group) {
        const uint4 w = memory.words[lane / 8 % 2][8 * group + lane % 8];
        x.b[group][0][0] = w.x, x.b[group][0][1] = w.y, x.b[group][1][0] = w.z, x.b[group][1][1] = w.w;
      }
    }
  }
  x.of_group = shared_at(memory.of_group[lane % 4]);
  pin(x.of_group);
  return x;
}

// One tile times a slice of four rows; the shares go to the tile's own memory, [row of the activations][row]. The
// arguments are those of multiply_pair. kPlain: whether the scales are.
template <bool kPlain>
__device__ inline void multiply_quad(uint32_t at, uint32_t in_box, uint32_t share, const PairPlaces& places,
                                     uint32_t tile, const QuadOperand& x) {
  constexpr uint32_t kLow = 0x0f0f0f0fu;
  float v[2] = {};
  const std::conditional_t<kPlain, PlainScales, AnyScales> scales(places, tile);
#pragma unroll
  for (uint32_t group = 0; group < 4; ++group) {
    float scale;
    int sum;
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=f"(scale), "=r"(sum) : "r"(x.of_group + 8 * group) : "memory");
    // Sums that begin with 0 need no registers set; `d` lets both products run at once.
    const int start = kPlain || places.offsets != 0 ? 0 : -8 * sum;
    int c[4] = {0, start, 0, start}, d[4] = {};
    uint32_t a[4];
    read_rows(at + (in_box ^ (32 * group)), a);
    multiply_bytes(c, a[0], a[1], a[2], a[3], x.b[group][0]);
    multiply_bytes(kPlain ? d : c, a[0] & kLow, a[1] & kLow, a[2] & kLow, a[3] & kLow, x.b[group][1]);
#pragma unroll
    for (uint32_t j = 0; j < 2; ++j) {
      const int dot = (c[2 * j] + d[2 * j]) * 256 + (c[2 * j + 1] + d[2 * j + 1]);
      if constexpr (kPlain) {
        v[j] = fmaf(static_cast<float>(dot - 8 * sum), scales.get(j, group) * scale, v[j]);
      } else {
        float one = static_cast<float>(dot) * scales.get(j, group);
        if (places.offsets != 0) one += scales.offset(j, group) * static_cast<float>(sum);
        v[j] = fmaf(one, scale, v[j]);
      }
    }
  }
  __syncwarp();  // every lane has read the tile
  put_float(at + share, v[0]), put_float(at + share + 32, v[1]);
}
// Either, by `places`.
__device__ inline void multiply_any_quad(uint32_t at, uint32_t in_box, uint32_t share, const PairPlaces& places,
                                         uint32_t tile, const QuadOperand& x) {
  if (places.plain()) {
    multiply_quad<true>(at, in_box, share, places, tile, x);
  } else {
    multiply_quad<false>(at, in_box, share, places, tile, x);
  }
}

}  // namespace gpu
