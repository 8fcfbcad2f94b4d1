// Weights for multiply_tiles_wide: quantized groups brought to signed bytes with one scale per kWideBlock elements of a
// row, in the order of AMX tiles. Only for files that are compiled with AVX-512.
#pragma once

#include <immintrin.h>

#include <algorithm>

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
// The quant v of a group with scale s becomes round(v * s / S), where S is the block's: one product of 16-bit words in
// which v stands in the upper bits, plus half a step (and the offset, i4a).
class Requantizer {
 public:
  static constexpr uint32_t kPieces = kWideBlock / 32;

  // Block `index` of the panel; `to` is what is written.
  void begin(const PanelShape& s, const uint8_t* panel, uint64_t index, WideBlock* to) {
    shape_ = &s;
    panel_ = panel;
    at_ = index * kWideBlock;
    end_ = std::min<uint64_t>(at_ + kWideBlock, s.blocks * s.block);
    to_ = to->quants;
    __m512 top = _mm512_setzero_ps();
    for (uint64_t k = at_; k < end_; k += s.block) top = _mm512_max_ps(top, largest(k));
    const __m512 scale = _mm512_mul_ps(top, _mm512_set1_ps(1.0f / 127));
    _mm512_store_ps(to->scales, scale);
    const __mmask16 some = _mm512_cmp_ps_mask(scale, _mm512_set1_ps(1e-30f), _CMP_GT_OQ);
    inverse_ = _mm512_maskz_div_ps(some, _mm512_set1_ps(1), scale);
  }

  // The next 32 elements of 16 rows; nothing beyond the last.
  void piece() {
    if (at_ >= end_) return;
    const swy_dtype type = shape_->dtype;
    const __m512i factor = words(_mm512_mul_ps(halves(shape_->scales_at, at_), unit()));
    if (type == SWY_I8) {
      bytes(factor);
    } else if (type == SWY_I4) {
      nibbles(factor, _mm512_set1_epi16(128));
    } else {
      const __m512 middle = _mm512_mul_ps(_mm512_mul_ps(value(8, at_), inverse_), _mm512_set1_ps(256));
      nibbles(factor, _mm512_add_epi16(words(middle), _mm512_set1_epi16(128)));
    }
    at_ += 32;
  }

 private:
  __m512 halves(uint64_t plane, uint64_t k) const {
    const uint64_t g = shape_->groups == 1 ? 0 : k / shape_->block;
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel_ + plane + g * kPanelRows * 2)));
  }
  // i4a: what the nibble stands for, in the group of element k.
  __m512 value(float nibble, uint64_t k) const {
    return _mm512_fmadd_ps(_mm512_set1_ps(nibble), halves(shape_->scales_at, k), halves(shape_->offsets_at, k));
  }
  // What 127 is to stand for, so that every weight of the group fits and factors fit in 16 bits (unit()).
  __m512 largest(uint64_t k) const {
    const __m512 scale = _mm512_abs_ps(halves(shape_->scales_at, k));
    if (shape_->dtype == SWY_I8) return _mm512_mul_ps(scale, _mm512_set1_ps(127.01f));
    if (shape_->dtype == SWY_I4) return _mm512_mul_ps(scale, _mm512_set1_ps(8));
    const __m512 most = _mm512_max_ps(_mm512_abs_ps(value(0, k)), _mm512_abs_ps(value(15, k)));
    return _mm512_mul_ps(most, _mm512_set1_ps(127.0f / 119));
  }
  // 16-bit factor of a group per its scale. mulhrs(v << 12, factor) is to be v * scale / S in 1/256: factor = scale / S
  // * 2^11 for nibbles, and 2^15 for bytes (v << 8).
  __m512 unit() const { return _mm512_mul_ps(inverse_, _mm512_set1_ps(shape_->dtype == SWY_I8 ? 32768.0f : 2048.0f)); }
  // Each of 16 values as the two words of its 32-bit lane.
  static __m512i words(__m512 x) {
    const __m512i w = _mm512_cvtps_epi32(x), packed = _mm512_packs_epi32(w, w);
    return _mm512_unpacklo_epi16(packed, packed);
  }
  // Words with v in their upper bits, rest ignored -> words with the new quant in their upper byte.
  template <int kUpper>  // bits to keep; unsigned quants become signed by flipping the highest
  static __m512i scaled(__m512i w, __m512i factor, __m512i add) {
    const __m512i v = _mm512_ternarylogic_epi32(w, _mm512_set1_epi16(static_cast<int16_t>(kUpper)),
                                                _mm512_set1_epi16(INT16_MIN), 0x6a);  // (w & upper) ^ top bit
    return _mm512_add_epi16(_mm512_mulhrs_epi16(v, factor), add);
  }
  // The upper bytes of the words of both, even ones first.
  static __m512i upper_bytes(__m512i even, __m512i odd) {
    const __m512i down = _mm512_broadcast_i32x4(_mm_set_epi8(14, 15, 12, 13, 10, 11, 8, 9, 6, 7, 4, 5, 2, 3, 0, 1));
    return _mm512_mask_shuffle_epi8(odd, 0x5555555555555555, even, down);
  }
  void prefetch(const uint8_t* line) const { _mm_prefetch(reinterpret_cast<const char*>(line) + 4096, _MM_HINT_T0); }

  void bytes(__m512i factor) {
    const uint8_t* line = panel_ + at_ * kPanelRows;
    const __m512i half = _mm512_set1_epi16(128);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i, line += 64, to_ += 64) {
      prefetch(line);
      const __m512i w = _mm512_loadu_si512(line);
      const __m512i even = scaled<0xff00>(_mm512_slli_epi16(w, 8), factor, half);
      _mm512_store_si512(to_, upper_bytes(even, scaled<0xff00>(w, factor, half)));
    }
  }
  void nibbles(__m512i factor, __m512i add) {
    const uint8_t* line = panel_ + at_ * kPanelRows / 2;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i, line += 64, to_ += 128) {
      prefetch(line);
      const __m512i w = _mm512_loadu_si512(line);
      const auto at = [&](__m512i x) { return scaled<0xf000>(x, factor, add); };
      _mm512_store_si512(to_, upper_bytes(at(_mm512_slli_epi16(w, 12)), at(_mm512_slli_epi16(w, 4))));
      _mm512_store_si512(to_ + 64, upper_bytes(at(_mm512_slli_epi16(w, 8)), at(w)));
    }
  }

  const PanelShape* shape_ = nullptr;
  const uint8_t* panel_ = nullptr;
  uint64_t at_ = 0, end_ = 0;  // elements along the width
  int8_t* to_ = nullptr;
  __m512 inverse_;
};

}  // namespace cpu
