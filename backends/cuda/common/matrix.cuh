// SPDX-License-Identifier: Apache-2.0
// Fragments of m16n8k16 products, read from tiles of bf16 in shared memory.
//
// A tile is [rows, 8 * units], 16 bytes per unit. The units of a row are permuted so that eight neighbouring rows have
// no bank conflicts: tile_at gives their place. First rows and columns of fragments are multiples of 8.
#pragma once

#include "copy_engine.cuh"
#include "tiles.cuh"

namespace gpu {

// Byte offset of a unit.
template <uint32_t kUnits>
__host__ __device__ constexpr uint32_t tile_at(uint32_t row, uint32_t unit) {
  static_assert(kUnits >= 2 && (kUnits & (kUnits - 1)) == 0);
  return (row * kUnits + (unit ^ (kUnits >= 8 ? row % 8 : kUnits == 4 ? row / 2 % 4 : row / 4 % 2))) * 16;
}

__device__ inline void load_matrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// An 8 x 8 matrix of 16-bit elements, two per lane, with rows and columns exchanged.
__device__ inline uint32_t transpose(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

// The address that this lane passes for four 8 x 8 matrices of 16 x 16 elements: down first (rows 0-7, then 8-15 of the
// left half, then the right half), or across first (both halves of rows 0-7, then of rows 8-15).
template <uint32_t kUnits>
__device__ inline uint32_t down_first(uint32_t row, uint32_t column) {
  const uint32_t lane = threadIdx.x % 32;
  return tile_at<kUnits>(row + lane % 16, column / 8 + lane / 16);
}
template <uint32_t kUnits>
__device__ inline uint32_t across_first(uint32_t row, uint32_t column) {
  const uint32_t lane = threadIdx.x % 32;
  return tile_at<kUnits>(row + lane / 16 * 8 + lane % 8, column / 8 + lane / 8 % 2);
}

// The first operand, 16 x 16, of a tile [m, k].
template <uint32_t kUnits>
__device__ inline void first_operand(uint32_t (&a)[4], uint32_t tile, uint32_t m, uint32_t k) {
  load_matrices(a, tile + down_first<kUnits>(m, k));
}
// The second operand for columns n to n + 7 (b[0], b[1]) and n + 8 to n + 15 (b[2], b[3]): of a tile [n, k], or [k, n].
template <uint32_t kUnits>
__device__ inline void second_operand(uint32_t (&b)[4], uint32_t tile, uint32_t n, uint32_t k) {
  load_matrices(b, tile + across_first<kUnits>(n, k));
}
template <uint32_t kUnits>
__device__ inline void second_transposed(uint32_t (&b)[4], uint32_t tile, uint32_t k, uint32_t n) {
  load_transposed(b, tile + down_first<kUnits>(k, n));
}

// Results of two neighbouring products [16, 8] as the first operand of the next, [16, 16].
__device__ inline void as_operand(uint32_t (&a)[4], const float (&left)[4], const float (&right)[4]) {
  a[0] = pack_bf16(left[0], left[1]), a[1] = pack_bf16(left[2], left[3]);
  a[2] = pack_bf16(right[0], right[1]), a[3] = pack_bf16(right[2], right[3]);
}

__device__ inline float low_of(uint32_t pair) { return bf16_bits(pair & 0xffffu); }
__device__ inline float high_of(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

}  // namespace gpu
