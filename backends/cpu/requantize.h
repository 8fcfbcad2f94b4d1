// Weights for multiply_tiles_wide: quantized groups brought to signed bytes with one scale per kWideBlock elements of a
// row, in the order of AMX tiles. Only for files that are compiled with AVX-512.
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

// Brings one block of a panel into form, a piece at a time, so that pieces can stand between products of tiles.
//
// The quant v of a group with scale s becomes round(v * m / 8) for nibbles and round(v * m / 128) for bytes: a product
// of 16-bit words in which v stands in the upper bits. m is s over the block's scale, rounded to 7 bits: that adds less
// than rounding the quants does. The offset of i4a becomes a quant that is added.
class Requantizer {
 public:
  static constexpr uint32_t kPieces = kWideBlock / 32;

  // Block `index` of the panel; `to` is what is written. Block `later_index` of the panel `later` is brought near
  // meanwhile; NULL: none.
  void begin(const PanelShape& s, const uint8_t* panel, uint64_t index, const uint8_t* later, uint64_t later_index,
             WideBlock* to) {
    shape_ = &s;
    panel_ = panel;
    group_shift_ = s.groups == 1 ? 63 : std::countr_zero(s.block);
    if (later == nullptr) later = panel, later_index = index;
    const auto blocks = static_cast<int64_t>(later_index - index) * (kWideBlock / s.block);
    later_quants_ = later - panel + blocks * static_cast<int64_t>(s.block_bytes);
    later_scales_ = later - panel + (s.groups == 1 ? 0 : blocks * int64_t{kPanelRows * 2});
    at_ = index * kWideBlock;
    end_ = std::min<uint64_t>(at_ + kWideBlock, s.blocks * s.block);
    to_ = to->quants;
    const __m512 top = s.dtype == SWY_I4A ? largest_value() : largest_scale();
    const float most = s.dtype == SWY_I8 ? 1.0f : s.dtype == SWY_I4 ? 127.0f / 8 : 119.0f;  // what `top` becomes
    const __mmask16 some = _mm512_cmp_ps_mask(top, _mm512_set1_ps(1e-30f), _CMP_GT_OQ);
    inverse_ = _mm512_maskz_div_ps(some, _mm512_set1_ps(most), top);
    _mm512_store_ps(to->scales, _mm512_mul_ps(top, _mm512_set1_ps(1.0f / most)));
  }

  // The next 32 elements of 16 rows; nothing beyond the last.
  void piece() {
    if (at_ >= end_) return;
    const float one = shape_->dtype == SWY_I8 ? 128.0f : 8.0f;
    const __m512i factor =
        words(_mm512_mul_ps(_mm512_mul_ps(floats(shape_->scales_at, at_), inverse_), _mm512_set1_ps(one)));
    if (shape_->dtype == SWY_I8) {
      bytes(factor);
    } else if (shape_->dtype == SWY_I4) {
      nibbles<false>(factor, factor);
    } else {
      const __m512i first_bytes = _mm512_broadcast_i32x4(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0));
      const __m512i middle = words(_mm512_mul_ps(value(8, at_), inverse_));
      nibbles<true>(factor, _mm512_shuffle_epi8(middle, first_bytes));
    }
    at_ += 32;
  }

 private:
  // 16 fp16 numbers of the plane: those of element k's group.
  __m256i halves(uint64_t plane, uint64_t k) const {
    const uint8_t* at = panel_ + plane + (k >> group_shift_) * (kPanelRows * 2);
    prefetch(at + later_scales_);
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  }
  __m512 floats(uint64_t plane, uint64_t k) const { return _mm512_cvtph_ps(halves(plane, k)); }
  // i4a: what the nibble stands for, in the group of element k.
  __m512 value(float nibble, uint64_t k) const {
    return _mm512_fmadd_ps(_mm512_set1_ps(nibble), floats(shape_->scales_at, k), floats(shape_->offsets_at, k));
  }
  // Of the block. fp16 numbers without a sign are in the order of their bits.
  __m512 largest_scale() const {
    __m256i top = _mm256_setzero_si256();
    for (uint64_t k = at_; k < end_; k += shape_->block) {
      top = _mm256_max_epu16(top, _mm256_and_si256(halves(shape_->scales_at, k), _mm256_set1_epi16(INT16_MAX)));
    }
    return _mm512_cvtph_ps(top);
  }
  __m512 largest_value() const {
    __m512 top = _mm512_setzero_ps();
    for (uint64_t k = at_; k < end_; k += shape_->block) {
      top = _mm512_max_ps(top, _mm512_max_ps(_mm512_abs_ps(value(0, k)), _mm512_abs_ps(value(15, k))));
    }
    return top;
  }
  // Each of 16 values as the two words of its 32-bit lane.
  static __m512i words(__m512 x) {
    const __m512i w = _mm512_cvtps_epi32(x), packed = _mm512_packs_epi32(w, w);
    return _mm512_unpacklo_epi16(packed, packed);
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

  void bytes(__m512i factor) {
    const uint8_t* line = panel_ + at_ * kPanelRows;
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i, line += 64, to_ += 64) {
      prefetch(line + later_quants_);
      const __m512i w = _mm512_loadu_si512(line);
      const __m512i even = scaled<0xff00>(_mm512_slli_epi16(w, 8), factor);
      _mm512_store_si512(to_, lower_bytes(even, scaled<0xff00>(w, factor)));
    }
  }
  template <bool kOffsets>
  void nibbles(__m512i factor, __m512i offset) {
    const uint8_t* line = panel_ + at_ * kPanelRows / 2;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i, line += 64, to_ += 128) {
      prefetch(line + later_quants_);
      const __m512i w = _mm512_loadu_si512(line);
      const auto at = [&](__m512i x) { return scaled<0xf000>(x, factor); };
      const auto put = [&](int8_t* to, __m512i quants) {
        _mm512_store_si512(to, kOffsets ? _mm512_add_epi8(quants, offset) : quants);
      };
      put(to_, lower_bytes(at(_mm512_slli_epi16(w, 12)), at(_mm512_slli_epi16(w, 4))));
      put(to_ + 64, lower_bytes(at(_mm512_slli_epi16(w, 8)), at(w)));
    }
  }

  const PanelShape* shape_ = nullptr;
  const uint8_t* panel_ = nullptr;
  int group_shift_ = 0;                          // of an element's number
  int64_t later_quants_ = 0, later_scales_ = 0;  // from a place in this block to the same one in the later block
  uint64_t at_ = 0, end_ = 0;                    // elements along the width
  int8_t* to_ = nullptr;
  __m512 inverse_;  // of the new scales
};

}  // namespace cpu
