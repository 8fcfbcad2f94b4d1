// SPDX-License-Identifier: Apache-2.0
// slices.cuh for two rows of activations: the eight columns of a product's second operand are the high and low bytes of
// both rows, of two groups of 64 each. A slice has four groups, so there are two sums, each scaled by itself.
//
// Lane 4 g + t has, of sum k, row g (and g + 8) of a tile, row t / 2 of the activations, and group 2 k + t % 2.
#pragma once

#include "slices.cuh"

namespace gpu {

// In shared memory: a slice's pieces of two rows, each made by a warp of its own. of_group: scale, and sum of integers.
struct alignas(16) PairMemory {
  uint4 words[2][32];
  float2 of_group[2][4];
};

struct PairOperand {
  uint32_t b[4][2][2];  // as in Operand
  float scale[2];       // of each sum: a 16th of the activations' scale
  int sum[2];           // 16 times the sum of their integers
};

// Lanes that differ in `bit` exchange pieces, so that the lane and the number of a piece change places.
__device__ inline void exchange_pieces(Piece& a, Piece& b, uint32_t bit) {
  const bool up = (threadIdx.x & bit) != 0;
  const auto exchange = [&](auto& x, auto& y) {
    const auto got = __shfl_xor_sync(kAll, up ? x : y, bit);
    (up ? x : y) = got;
  };
  exchange(a.words.x, b.words.x), exchange(a.words.y, b.words.y);
  exchange(a.words.z, b.words.z), exchange(a.words.w, b.words.w);
  exchange(a.scale, b.scale), exchange(a.sum, b.sum);
}

// `words`: of a half of the slice each, by lanes with those of the first row, then of the second.
__device__ inline PairOperand pair_operand(const uint4 (&words)[2]) {
  PairOperand x{};
#pragma unroll
  for (uint32_t group = 0; group < 4; ++group) {
    const bool mine = threadIdx.x % 32 / 8 % 2 == group % 2;
    const uint4 w = words[group / 2];
    x.b[group][0][0] = mine ? w.x : 0, x.b[group][0][1] = mine ? w.y : 0;
    x.b[group][1][0] = mine ? w.z : 0, x.b[group][1][1] = mine ? w.w : 0;
  }
  return x;
}
// Of each row's pieces: lane i has made that of elements 8 i to 8 i + 7.
__device__ inline PairOperand make_pair_operand(Piece (&piece)[2]) {
  const uint32_t t = threadIdx.x % 4;
  // Eight lanes have a group, and a number is a row. From here on numbers are halves of the slice, and lanes rows.
  exchange_pieces(piece[0], piece[1], 16);
  PairOperand x = pair_operand({piece[0].words, piece[1].words});
#pragma unroll
  for (uint32_t k = 0; k < 2; ++k) {
    x.scale[k] = __shfl_sync(kAll, piece[k].scale, 8 * t) * (1.0f / 16);
    x.sum[k] = 16 * static_cast<int>(__shfl_sync(kAll, piece[k].sum, 8 * t));
  }
  return x;
}

// The same of pieces that two warps have made: this warp those of row `row`. `barrier`: their own.
__device__ inline PairOperand make_pair_operand(const Piece& piece, uint32_t row, PairMemory& memory,
                                                uint32_t barrier) {
  const uint32_t lane = threadIdx.x % 32, t = lane % 4;
  memory.words[row][lane] = piece.words;
  if (lane % 8 == 0) memory.of_group[row][lane / 8] = make_float2(piece.scale, __uint_as_float(piece.sum));
  asm volatile("bar.sync %0, 64;" ::"r"(barrier) : "memory");
  PairOperand x = pair_operand({memory.words[lane / 16][lane % 16], memory.words[lane / 16][16 + lane % 16]});
#pragma unroll
  for (uint32_t k = 0; k < 2; ++k) {
    const float2 of = memory.of_group[t / 2][2 * k + t % 2];
    x.scale[k] = of.x * (1.0f / 16);
    x.sum[k] = 16 * __float_as_int(of.y);
  }
  return x;
}

// Where this lane finds scales: of row g of a tile and the slice's first group; of row g + 8; of the next tile;
// offsets. A scale is of 64 << shift columns.
struct PairPlaces {
  uint32_t at, eight, next, offsets, shift;

  __device__ PairPlaces(const void* scales, const Weight& w, uint32_t slice, uint32_t rows, uint32_t next_tile) {
    const TileScales all(scales, w, slice, rows, next_tile);
    at = shared_at(all.scales + threadIdx.x % 32 / 4 * all.stride);
    eight = 16 * all.stride, next = 2 * all.next, offsets = 2 * all.offsets, shift = all.shift;
    pin(at), pin(eight), pin(next), pin(offsets), pin(shift);
  }
  // Whether weights have a scale for each group of 64, and no offsets.
  __device__ bool plain() const { return offsets == 0 && shift == 0; }
};
// Scales of a tile and a slice: get(j, group) is that of row g + 8 j of the tile.
struct AnyScales {
  const PairPlaces& places;
  uint32_t first;

  __device__ AnyScales(const PairPlaces& of, uint32_t tile) : places(of), first(of.at + tile * of.next) {}
  __device__ uint32_t at(uint32_t j, uint32_t group) const {
    return first + 2 * (group >> places.shift) + j * places.eight;
  }
  __device__ float get(uint32_t j, uint32_t group) const { return shared_half(at(j, group)); }
  __device__ float offset(uint32_t j, uint32_t group) const { return shared_half(at(j, group) + places.offsets); }
};
// Plain ones: a row's four lie together, so one load brings them.
struct PlainScales {
  uint2 of[2];

  __device__ PlainScales(const PairPlaces& places, uint32_t tile) {
#pragma unroll
    for (uint32_t j = 0; j < 2; ++j) {
      asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                   : "=r"(of[j].x), "=r"(of[j].y)
                   : "r"(places.at + tile * places.next + j * places.eight)
                   : "memory");
    }
  }
  __device__ float get(uint32_t j, uint32_t group) const {
    const uint32_t word = group / 2 == 0 ? of[j].x : of[j].y;
    return half_bits(static_cast<uint16_t>(group % 2 == 0 ? word & 0xffff : word >> 16));
  }
};

// One tile times a slice of both rows; the shares go to the tile's own memory, [t][row]. `tile`: its place among those
// of `places`. `in_box` and `share`: of lane_of_box and share_of_lane.
__device__ inline void multiply_pair(uint32_t at, uint32_t in_box, uint32_t share, const PairPlaces& places,
                                     uint32_t tile, const PairOperand& x) {
  constexpr uint32_t kLow = 0x0f0f0f0fu;
  int c[2][4];
#pragma unroll
  for (uint32_t k = 0; k < 2; ++k) {
    const int start = places.offsets != 0 ? 0 : -8 * x.sum[k];
    c[k][0] = 0, c[k][1] = start, c[k][2] = 0, c[k][3] = start;
  }
#pragma unroll
  for (uint32_t group = 0; group < 4; ++group) {
    uint32_t a[4];
    read_rows(at + (in_box ^ (32 * group)), a);
    multiply_bytes(c[group / 2], a[0], a[1], a[2], a[3], x.b[group][0]);
    multiply_bytes(c[group / 2], a[0] & kLow, a[1] & kLow, a[2] & kLow, a[3] & kLow, x.b[group][1]);
  }
  float v[2] = {};
#pragma unroll
  for (uint32_t k = 0; k < 2; ++k) {
    const uint32_t from = places.at + tile * places.next + 2 * ((2 * k + threadIdx.x % 2) >> places.shift);
#pragma unroll
    for (uint32_t j = 0; j < 2; ++j) {
      float one = static_cast<float>(c[k][2 * j] * 256 + c[k][2 * j + 1]) * shared_half(from + j * places.eight);
      if (places.offsets != 0) {
        one += shared_half(from + j * places.eight + places.offsets) * static_cast<float>(x.sum[k]);
      }
      v[j] = fmaf(one, x.scale[k], v[j]);
    }
  }
  __syncwarp();  // every lane has read the tile
  put_float(at + share, v[0]), put_float(at + share + 32, v[1]);
}

}  // namespace gpu
