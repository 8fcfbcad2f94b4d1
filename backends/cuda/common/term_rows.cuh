// SPDX-License-Identifier: Apache-2.0
// Products of 8 or 16 rows of a bf16 weight (a router, gates) with up to four rows of activations on Hopper: the eight
// columns of a matrix instruction's second operand are two bf16 terms of each row. A block's 16 warps have 128 columns
// each.
//
// Which column an instruction takes is free as long as both operands agree: lane 4 g + t has elements 8 t to 8 t + 7 of
// every 32.
#pragma once

#include "quad_rows.cuh"
#include "vector.cuh"

namespace gpu {

constexpr uint32_t kTermWarps = 16, kTermThreads = 32 * kTermWarps;
constexpr uint32_t kTermChunks = 4;  // of 32 columns, of a warp
constexpr uint32_t kTermWidth = kTermWarps * kTermChunks * 32;

// In shared memory. Pieces of rows g and g + 8 by thread, so that no two threads meet in a bank.
template <uint32_t kRows>
struct TermMemory {
  uint4 pieces[kRows / 8 * kTermChunks][kTermThreads];
  alignas(16) float factors[kTermWidth];  // of the norm
  float parts[kTermWarps][kQuad][kRows];
  alignas(16) float squares[kQuad][kTermWarps];
};

// Two floats as bf16, the first in the lower half.
__device__ inline uint32_t two_terms(float low, float high) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&two);
}
// m16n8k16. tiles.cuh has the same; it cannot be included beside boxes.cuh, whose tiles have another size.
__device__ inline void multiply_terms(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                      uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

template <uint32_t kRows>
struct TermBlock {
  static constexpr uint32_t kEights = kRows / 8;
  TermMemory<kRows>& memory;
  uint32_t width, warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  __device__ uint32_t column(uint32_t chunk) const { return (warp * kTermChunks + chunk) * 32 + lane % 4 * 8; }
  // Keeps rows `first` to first + rows - 1 of a weight in bf16, before the activations are ready; threads read what
  // they kept themselves.
  __device__ void keep(const Weight& w, uint32_t first, uint32_t rows) const {
    uint4 v[kEights * kTermChunks];
#pragma unroll
    for (uint32_t i = 0; i < kEights * kTermChunks; ++i) {
      const uint32_t row = lane / 4 + i % kEights * 8, k = column(i / kEights);
      const bool in = row < rows && k < width;
      v[i] = in ? load_piece(w.data + (uint64_t{first + row} * width + k) * 2) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (uint32_t i = 0; i < kEights * kTermChunks; ++i) memory.pieces[i][threadIdx.x] = v[i];
  }
  __device__ void keep_factors(const Weight& norm, bool normed, float bias) const {
    const uint32_t k = 4 * threadIdx.x;
    float v[4];
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) v[j] = normed && k < width ? bias + plain_at(norm, k + j) : 1.0f;
    *reinterpret_cast<float4*>(memory.factors + k) = make_float4(v[0], v[1], v[2], v[3]);
  }
  // The products of all rows, and their squares; the block meets before it reads them.
  __device__ void multiply(const float* x, uint32_t rows) const {
    const uint32_t row = lane / 8, g = lane / 4, t = lane % 4;
    const bool low = g % 2 != 0;
    float v[kTermChunks][8], acc[4] = {}, square = 0;
#pragma unroll
    for (uint32_t c = 0; c < kTermChunks; ++c) {
      const bool in = row < rows && column(c) < width;
      const auto* from = reinterpret_cast<const float4*>(x + uint64_t{row} * width + column(c));
      const float4 a = in ? __ldcg(from) : make_float4(0, 0, 0, 0), b = in ? __ldcg(from + 1) : a;
      v[c][0] = a.x, v[c][1] = a.y, v[c][2] = a.z, v[c][3] = a.w;
      v[c][4] = b.x, v[c][5] = b.y, v[c][6] = b.z, v[c][7] = b.w;
    }
#pragma unroll
    for (uint32_t c = 0; c < kTermChunks; ++c) {
      const auto* factors = reinterpret_cast<const float4*>(memory.factors + column(c));
      const float4 p = factors[0], q = factors[1];
      const float by[8] = {p.x, p.y, p.z, p.w, q.x, q.y, q.z, q.w};
      uint32_t terms[4];
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) {
        float two[2];
#pragma unroll
        for (uint32_t k = 0; k < 2; ++k) {
          square = fmaf(v[c][2 * j + k], v[c][2 * j + k], square);
          two[k] = v[c][2 * j + k] * by[2 * j + k];
        }
        const uint32_t high = two_terms(two[0], two[1]);
        const uint32_t rest =
            two_terms(two[0] - __uint_as_float(high << 16), two[1] - __uint_as_float(high & 0xffff0000u));
        terms[j] = low ? rest : high;
      }
      const uint4 a = memory.pieces[kEights * c][threadIdx.x];
      const uint4 b = kEights == 2 ? memory.pieces[kEights * c + 1][threadIdx.x] : make_uint4(0, 0, 0, 0);
      multiply_terms(acc, a.x, b.x, a.y, b.y, terms[0], terms[1]);
      multiply_terms(acc, a.z, b.z, a.w, b.w, terms[2], terms[3]);
    }
    memory.parts[warp][t][g] = acc[0] + acc[1];
    if (kEights == 2) memory.parts[warp][t][g + 8] = acc[2] + acc[3];
    square += __shfl_xor_sync(kAll, square, 1);
    square += __shfl_xor_sync(kAll, square, 2);
    if (lane % 8 == 0) memory.squares[row][warp] = square;
  }
  // The sum of a row of the weight and a row of the activations.
  __device__ float sum(uint32_t row, uint32_t x_row) const {
    float total = 0;
#pragma unroll
    for (uint32_t w = 0; w < kTermWarps; ++w) total += memory.parts[w][x_row][row];
    return total;
  }
};

}  // namespace gpu
