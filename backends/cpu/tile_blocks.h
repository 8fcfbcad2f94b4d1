// SPDX-License-Identifier: Apache-2.0
// Matrices as blocks of bf16 tiles, for kernels whose operands are activations. Only for files compiled with AMX and
// AVX512_BF16; call between tiles_begin(64) and tiles_end() of the calling thread.
//
// A tile is 1 KiB. In a left operand it holds 16 rows by 32 of the depth; in a right operand 16 columns by 32 of the
// depth, two neighbours along the depth side by side; in a result, in fp32, 16 rows by 16 columns.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "multiply.h"
#include "tiles.h"

namespace cpu {

inline constexpr uint64_t kTileBytes = 1024, kTileFloats = 256;
inline constexpr uint32_t kTileDepth = 32;  // bf16 elements

inline constexpr float kLog2e = 1.44269504f;

inline __m512 broadcast(float x) { return _mm512_set1_ps(x); }
inline __mmask16 first_lanes(int64_t n) {
  return static_cast<__mmask16>(n <= 0 ? 0 : n >= 16 ? 0xffff : (1u << n) - 1);
}

// 2^x for x <= 0, within 4e-6.
inline __m512 exp2(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), r = _mm512_sub_ps(x, n);
  __m512 p = broadcast(9.6181291e-3f);
  p = _mm512_fmadd_ps(p, r, broadcast(5.5504109e-2f));
  p = _mm512_fmadd_ps(p, r, broadcast(2.4022651e-1f));
  p = _mm512_fmadd_ps(p, r, broadcast(6.9314718e-1f));
  p = _mm512_fmadd_ps(p, r, broadcast(1.0f));
  return _mm512_scalef_ps(p, n);
}

// A line of a left operand: 32 neighbours of one row.
inline __m512i line_of(__m512 first, __m512 second) { return (__m512i)_mm512_cvtne2ps_pbh(second, first); }

// A line of a right operand: 16 columns of two neighbours along the depth.
inline __m512i pair_of(__m512 even, __m512 odd) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, line_of(even, odd));
}

// Two by two tiles of results: lines of 16 in a stride of bytes, tiles in strides of floats.
struct TileResults {
  float* at;
  uint64_t line_bytes, column, row;
};

// to = a * b over `steps` tiles of depth, plus `from` if that is given. The second row of tiles of a is `a_stride`
// bytes on, the second column of b `b_stride`.
inline void multiply_tiles(const uint8_t* a, uint64_t a_stride, const uint8_t* b, uint64_t b_stride, uint64_t steps,
                           const TileResults* from, const TileResults& to) {
  if (from == nullptr) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, from->at, from->line_bytes);
    _tile_loadd(1, from->at + from->column, from->line_bytes);
    _tile_loadd(2, from->at + from->row, from->line_bytes);
    _tile_loadd(3, from->at + from->row + from->column, from->line_bytes);
  }
  for (uint64_t k = 0; k < steps; ++k, a += kTileBytes, b += kTileBytes) {
    _tile_loadd(6, b, 64);
    _tile_loadd(4, a, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + b_stride, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + a_stride, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, to.at, to.line_bytes);
  _tile_stored(1, to.at + to.column, to.line_bytes);
  _tile_stored(2, to.at + to.row, to.line_bytes);
  _tile_stored(3, to.at + to.row + to.column, to.line_bytes);
}

// The same with results in neighbouring tiles at c, rows of tiles `c_stride` floats apart; added to c's contents unless
// `fresh`.
inline void multiply_tiles(const uint8_t* a, uint64_t a_stride, const uint8_t* b, uint64_t b_stride, uint64_t steps,
                           bool fresh, float* c, uint64_t c_stride) {
  TileResults results{nullptr, 64, kTileFloats, c_stride};
  results.at = c;
  multiply_tiles(a, a_stride, b, b_stride, steps, fresh ? nullptr : &results, results);
}

}  // namespace cpu
