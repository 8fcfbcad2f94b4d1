// SPDX-License-Identifier: Apache-2.0
// Weights for multiply_tiles_wide: quantized groups converted to signed bytes with one scale per wide_block() elements
// of a row, in the order of AMX tiles. Only for files that are compiled with AVX-512.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <bit>

#include "panels.h"
#include "rows.h"

namespace cpu {

// One block of one panel: w = quant * scale.
struct WideBlock {
  alignas(64) int8_t quants[kWideBlock * kPanelRows];  // tiles of 64 elements by 16 rows
  alignas(64) float scales[kPanelRows];
};

// Converts one block of a panel, piece by piece, so that pieces can run between products of tiles.
//
// The quant v of a group with scale s becomes round(v * m / 8) for nibbles and round(v * m / 128) for bytes: a product
// of 16-bit words with v in the upper bits. m is s over the block's scale, rounded to 7 bits; this adds less error than
// rounding the quants. The offset of i4a becomes a quant that is added. mxfp4 is looked up as 8 times its doubled
// value, which the factors of bytes then scale: groups whose scale is at least an eighth of the block's lose nothing.
// A piece is kPieceWidth elements of 16 rows, at most a group: 16 or 32.
template <swy_dtype kType, uint32_t kPieceWidth>
class Requantizer {
 public:
  static constexpr uint32_t kGroupBytes = kType == SWY_MXFP4 ? kPanelRows : kPanelRows * 2;  // of scales

  // Block `index` of the panel; `to` is the output. Block `later_index` of the panel `later` is prefetched meanwhile;
  // NULL: none.
  void begin(const PanelShape& s, const uint8_t* panel, uint64_t index, const uint8_t* later, uint64_t later_index,
             WideBlock* to) {
    const uint32_t block = wide_block(s.width);
    const uint64_t at = index * block, group = s.groups == 1 ? 0 : at / s.block;
    if (later == nullptr) later = panel, later_index = index;
    const auto blocks = static_cast<int64_t>(later_index - index) * (block / s.block);
    later_quants_ = later - panel + blocks * static_cast<int64_t>(s.block_bytes);
    later_scales_ = later - panel + (s.groups == 1 ? 0 : blocks * int64_t{kGroupBytes});
    quants_ = panel + at * kPanelRows / (kType == SWY_I8 ? 1 : 2);
    scales_ = panel + s.scales_at + group * kGroupBytes;
    offsets_ = static_cast<int64_t>(s.offsets_at) - static_cast<int64_t>(s.scales_at);
    group_shift_ = s.groups == 1 ? 31 : std::countr_zero(s.block);
    to_ = to->quants;
    const auto width = static_cast<uint32_t>(std::min<uint64_t>(block, s.blocks * s.block - at));
    pieces_ = width / kPieceWidth;
    constexpr float kOne = kType == SWY_I8 || kType == SWY_MXFP4 ? 128.0f : 8.0f;
    const __m512 top = kType == SWY_I4A ? largest_value(width, s.block) : largest_scale(width, s.block);
    const float most = kType == SWY_I4 ? 127.0f / 8 : kType == SWY_I4A ? 119.0f : 1.0f;  // the quant of `top`
    const __mmask16 some = _mm512_cmp_ps_mask(top, _mm512_set1_ps(1e-30f), _CMP_GT_OQ);
    factor_ = _mm512_maskz_div_ps(some, _mm512_set1_ps(most * kOne), top);
    constexpr float kUnit = kType == SWY_MXFP4 ? 1.0f / 16 : 1.0f;
    _mm512_store_ps(to->scales, _mm512_mul_ps(top, _mm512_set1_ps(kUnit / most)));
  }

  uint32_t pieces() const { return pieces_; }

  // Piece `index` below pieces().
  __attribute__((always_inline)) void piece(uint32_t index) const {
    const uint8_t* scales = scales_of(index);
    prefetch(scales + later_scales_);
    const __m512i factor = words(_mm512_mul_ps(floats(scales), factor_));
    __m512i offset = _mm512_setzero_si512();
    if constexpr (kType == SWY_I4A) {
      const __m512i first_bytes = _mm512_broadcast_i32x4(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0));
      offset = _mm512_shuffle_epi8(
          words(_mm512_mul_ps(value(8, scales), _mm512_mul_ps(factor_, _mm512_set1_ps(1 / 8.0f)))), first_bytes);
    }
    int8_t* to = to_ + uint64_t{index} * (kPieceWidth * kPanelRows);
    const uint8_t* line = quants_ + uint64_t{index} * (kPieceWidth * kPanelRows / (kType == SWY_I8 ? 1 : 2));
    const uint8_t* later = line + later_quants_;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < kPieceWidth / (kType == SWY_I8 ? 4 : 8); ++i, line += 64, later += 64) {
      prefetch(later);
      const __m512i w = _mm512_loadu_si512(line);
      if constexpr (kType == SWY_I8) {
        const __m512i even = scaled<0xff00>(_mm512_slli_epi16(w, 8), factor);
        _mm512_store_si512(to, lower_bytes(even, scaled<0xff00>(w, factor)));
        to += 64;
      } else if constexpr (kType == SWY_MXFP4) {
        const auto put = [&](int8_t* at, __m512i nibbles) {
          const __m512i v = _mm512_shuffle_epi8(table(), _mm512_and_si512(nibbles, _mm512_set1_epi8(15)));
          _mm512_store_si512(at,
                             lower_bytes(scaled<0xff00>(_mm512_slli_epi16(v, 8), factor), scaled<0xff00>(v, factor)));
        };
        put(to, w);
        put(to + 64, _mm512_srli_epi16(w, 4));
        to += 128;
      } else {
        const auto put = [&](int8_t* at, __m512i even, __m512i odd) {
          const __m512i quants = lower_bytes(scaled<0xf000>(even, factor), scaled<0xf000>(odd, factor));
          _mm512_store_si512(at, kType == SWY_I4A ? _mm512_add_epi8(quants, offset) : quants);
        };
        put(to, _mm512_slli_epi16(w, 12), _mm512_slli_epi16(w, 4));
        put(to + 64, _mm512_slli_epi16(w, 8), w);
        to += 128;
      }
    }
  }

 private:
  const uint8_t* scales_of(uint32_t piece) const {
    return scales_ + uint64_t{(piece * kPieceWidth) >> group_shift_} * kGroupBytes;
  }
  // 16 fp16 numbers, or exponents.
  static __m256i halves(const uint8_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }
  static __m128i exponents(const uint8_t* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }
  static __m512 powers(__m128i bytes) {
    const __m512i bits = _mm512_slli_epi32(_mm512_cvtepu8_epi32(bytes), 23);
    return _mm512_castsi512_ps(_mm512_max_epu32(bits, _mm512_set1_epi32(kLeastE8m0)));
  }
  static __m512 floats(const uint8_t* at) {
    if constexpr (kType == SWY_MXFP4) return powers(exponents(at));
    return _mm512_cvtph_ps(halves(at));
  }
  // Of nibbles of mxfp4, 16 times the values, with the highest bit flipped.
  static __m512i table() {
    const __m128i twice = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kTwiceE2m1));
    const __m128i four = _mm_add_epi8(_mm_add_epi8(twice, twice), _mm_add_epi8(twice, twice));
    return _mm512_broadcast_i32x4(_mm_xor_si128(_mm_add_epi8(four, four), _mm_set1_epi8(INT8_MIN)));
  }
  // i4a: the value of a zero nibble, in the groups of these scales.
  __m512 value(float nibble, const uint8_t* scales) const {
    return _mm512_fmadd_ps(_mm512_set1_ps(nibble), floats(scales), floats(scales + offsets_));
  }
  // The scale of the block. The bits of non-negative fp16 numbers are ordered as the numbers are.
  __m512 largest_scale(uint32_t width, uint32_t group) const {
    if constexpr (kType == SWY_MXFP4) {
      __m128i top = _mm_setzero_si128();
      for (uint32_t k = 0; k < width; k += group) top = _mm_max_epu8(top, exponents(scales_of(k / kPieceWidth)));
      return powers(top);
    }
    __m256i top = _mm256_setzero_si256();
    for (uint32_t k = 0; k < width; k += group) {
      top = _mm256_max_epu16(top, _mm256_and_si256(halves(scales_of(k / kPieceWidth)), _mm256_set1_epi16(INT16_MAX)));
    }
    return _mm512_cvtph_ps(top);
  }
  __m512 largest_value(uint32_t width, uint32_t group) const {
    __m512 top = _mm512_setzero_ps();
    for (uint32_t k = 0; k < width; k += group) {
      const uint8_t* scales = scales_of(k / kPieceWidth);
      top = _mm512_max_ps(top, _mm512_max_ps(_mm512_abs_ps(value(0, scales)), _mm512_abs_ps(value(15, scales))));
    }
    return top;
  }
  // Each of 16 values as the two words of its 32-bit lane.
  static __m512i words(__m512 x) {
    const __m512i twice = _mm512_broadcast_i32x4(_mm_set_epi8(13, 12, 13, 12, 9, 8, 9, 8, 5, 4, 5, 4, 1, 0, 1, 0));
    return _mm512_shuffle_epi8(_mm512_cvtps_epi32(x), twice);
  }
  // Words with v in their upper bits, rest ignored -> words with the new quant.
  template <int kUpper>  // bits to keep; unsigned quants become signed by flipping the highest
  static __m512i scaled(__m512i w, __m512i factor) {
    const __m512i v = _mm512_ternarylogic_epi32(w, _mm512_set1_epi16(static_cast<int16_t>(kUpper)),
                                                _mm512_set1_epi16(INT16_MIN), 0x6a);  // (w & upper) ^ top bit
    return _mm512_mulhrs_epi16(v, factor);
  }
  // The lower bytes of the words of both, in turn.
  static __m512i lower_bytes(__m512i even, __m512i odd) {
    const __m512i up = _mm512_broadcast_i32x4(_mm_set_epi8(14, 15, 12, 13, 10, 11, 8, 9, 6, 7, 4, 5, 2, 3, 0, 1));
    return _mm512_mask_shuffle_epi8(even, 0xaaaaaaaaaaaaaaaa, odd, up);
  }
  static void prefetch(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }

  const uint8_t *quants_ = nullptr, *scales_ = nullptr;
  int64_t offsets_ = 0;                          // from a group's scales
  int64_t later_quants_ = 0, later_scales_ = 0;  // from a place in this block to the same one in the later block
  int group_shift_ = 0;                          // of an element's number in the block
  uint32_t pieces_ = 0;
  int8_t* to_ = nullptr;
  __m512 factor_;  // of scales, to m
};

}  // namespace cpu
