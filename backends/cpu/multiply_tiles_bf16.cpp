// multiply_tiles_bf16: AMX bf16 tiles, two tiles of rows by two panels.
//
// A stretch of the panels is dequantized into bf16 tiles that fit the first-level cache, then all rows run over it; the
// sums rest in the outputs between stretches. bf16 weights are tiles already and are read where they lie.
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "multiply.h"
#include "tiles.h"

namespace cpu {
namespace {

constexpr uint32_t kDepth = 32;     // elements along the width of one tile
constexpr uint32_t kStretch = 512;  // and of one stretch
constexpr uint64_t kTileBytes = 1024;

struct Stretch {
  alignas(64) uint8_t weights[2][kStretch / kDepth * kTileBytes];
};

// Lane n of two vectors, rounded to bf16, side by side: [low 0, high 0, low 1, high 1, ...].
__m512i pairs(__m512 low, __m512 high) {
  const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(high, low);  // 16 of low, then 16 of high
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, both);
}

__m512 halves_at(const uint8_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }

// One line of 8-bit weights: 4 elements of each row, as two lines of bf16.
void unpack_bytes(const uint8_t* line, __m512 scale, uint8_t* to) {
  const __m512i w = _mm512_xor_si512(_mm512_loadu_si512(line), _mm512_set1_epi8(-128));
  const auto element = [&](__m512i at_top) {
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32(at_top, 24)), scale);
  };
  const __m512 e0 = element(_mm512_slli_epi32(w, 24)), e1 = element(_mm512_slli_epi32(w, 16));
  const __m512 e2 = element(_mm512_slli_epi32(w, 8)), e3 = element(w);
  _mm512_store_si512(to, pairs(e0, e1));
  _mm512_store_si512(to + 64, pairs(e2, e3));
}

// One line of 4-bit weights: 8 elements of each row, as four lines of bf16. `values`: what each nibble stands for.
template <bool kOffsets>
void unpack_nibbles(const uint8_t* line, __m512 values, __m512 scale, __m512 offset, uint8_t* to) {
  const __m512i w = _mm512_loadu_si512(line);
  const auto element = [&](__m512i nibble_low) {  // the permutation reads the low 4 bits of a lane
    const __m512 v = _mm512_permutexvar_ps(nibble_low, values);
    return kOffsets ? _mm512_fmadd_ps(v, scale, offset) : _mm512_mul_ps(v, scale);
  };
  const auto at = [&](int bits) { return _mm512_srli_epi32(w, static_cast<unsigned>(bits)); };
  _mm512_store_si512(to, pairs(element(w), element(at(8))));
  _mm512_store_si512(to + 64, pairs(element(at(16)), element(at(24))));
  _mm512_store_si512(to + 128, pairs(element(at(4)), element(at(12))));
  _mm512_store_si512(to + 192, pairs(element(at(20)), element(at(28))));
}

// Blocks [first, last) of a panel.
void unpack(const PanelShape& s, const uint8_t* panel, uint64_t first, uint64_t last, uint8_t* to) {
  const __m512 values = _mm512_sub_ps(_mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                      _mm512_set1_ps(s.dtype == SWY_I4 ? 8.0f : 0.0f));
  for (uint64_t b = first; b < last; ++b) {
    const uint64_t g = s.groups == 1 ? 0 : b * kPanelRows * 2;
    const __m512 scale = halves_at(panel + s.scales_at + g);
    const __m512 offset = s.dtype == SWY_I4A ? halves_at(panel + s.offsets_at + g) : scale;
    const uint8_t* line = panel + b * s.block_bytes;
    for (const uint8_t* end = line + s.block_bytes; line < end; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(line) + 4096, _MM_HINT_T0);
      if (s.dtype == SWY_I8) {
        unpack_bytes(line, scale, to);
        to += 128;
      } else {
        (s.dtype == SWY_I4A ? unpack_nibbles<true> : unpack_nibbles<false>)(line, values, scale, offset, to);
        to += 256;
      }
    }
  }
}

// out [32, 16] of two panels += rows x tiles over `steps` products. With `fresh` the outputs begin at zero.
void products(const uint8_t* rows, long row_bytes, const uint8_t* first, const uint8_t* second, uint64_t steps,
              bool fresh, float* first_out, float* second_out) {
  constexpr long kOut = kPanelRows * sizeof(float);
  constexpr uint64_t kHalf = kTileRows * kPanelRows;
  if (fresh) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, first_out, kOut);
    _tile_loadd(1, second_out, kOut);
    _tile_loadd(2, first_out + kHalf, kOut);
    _tile_loadd(3, second_out + kHalf, kOut);
  }
  for (uint64_t k = 0; k < steps; ++k) {
    _tile_loadd(4, rows + k * 64, row_bytes);
    _tile_loadd(6, first + k * kTileBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, second + k * kTileBytes, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, rows + k * 64 + kTileRows * static_cast<uint64_t>(row_bytes), row_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, first_out, kOut);
  _tile_stored(1, second_out, kOut);
  _tile_stored(2, first_out + kHalf, kOut);
  _tile_stored(3, second_out + kHalf, kOut);
}

}  // namespace

void multiply_tiles_bf16(const PanelShape& s, const uint8_t* first, const uint8_t* second, const RowFormat& format,
                         const uint8_t* rows, uint32_t m, void* scratch, float* first_out, float* second_out) {
  static_assert(sizeof(Stretch) <= kTileScratch);
  Stretch& stretch = *static_cast<Stretch*>(scratch);
  const auto row_bytes = static_cast<long>(format.bytes);
  const bool plain = s.dtype == SWY_BF16;
  const uint64_t step = kStretch / s.block;  // blocks
  alignas(64) float unused[kTileGroup * kPanelRows];
  for (uint64_t b = 0; b < s.blocks; b += step) {
    const uint64_t last = std::min(b + step, s.blocks), tiles = (last - b) * s.block / kDepth;
    const uint8_t *w0 = first + b * s.block_bytes, *w1 = second + b * s.block_bytes;
    if (!plain) {
      unpack(s, first, b, last, stretch.weights[0]);
      if (second != first) unpack(s, second, b, last, stretch.weights[1]);
      w0 = stretch.weights[0];
      w1 = second != first ? stretch.weights[1] : w0;
    }
    for (uint32_t r = 0; r < m; r += kTileGroup) {
      const uint8_t* x = rows + r * format.bytes + b * s.block * 2;
      float* out0 = first_out + r * kPanelRows;
      float* out1 = second != first ? second_out + r * kPanelRows : unused;
      products(x, row_bytes, w0, w1, tiles, b == 0, out0, out1);
      if (plain && format.kind == RowKind::split_bf16) {
        products(x + format.rest_at, row_bytes, w0, w1, tiles, false, out0, out1);
      }
    }
  }
}

}  // namespace cpu
