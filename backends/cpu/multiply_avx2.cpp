// SPDX-License-Identifier: Apache-2.0
// multiply with AVX2: products of bytes are summed in pairs to 16 bits, which cannot overflow for 4-bit weights; bytes
// are widened to 16 bits first.
#include <immintrin.h>

#include "multiply.h"

namespace cpu::detail {
namespace {

// sums[n] += the 4 products of each row n of half a line (8 rows of the panel).
__m256i add_nibbles(__m256i sum, __m256i weights, __m256i x) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(weights, x), _mm256_set1_epi16(1)));
}
__m256i add_bytes(__m256i sum, __m256i weights, int32_t x4) {
  const __m256i x = _mm256_cvtepi8_epi16(_mm_set1_epi32(x4));
  const __m256i first = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(weights)), x);
  const __m256i second = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_extracti128_si256(weights, 1)), x);
  // hadd works within 128-bit lanes and gives [f01 s01 | f23 s23]; the permutation restores the order of the rows
  return _mm256_add_epi32(sum, _mm256_permute4x64_epi64(_mm256_hadd_epi32(first, second), 0xd8));
}

// Of 32 bytes below 16, each the value in the table [16].
__m256i looked_up(const int8_t* table, __m256i nibbles) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table))),
                             nibbles);
}

struct Halves {
  __m256i low, high;  // rows 0..7 and 8..15 of the panel
};

template <swy_dtype kType>
Halves block_sums(const PanelShape& s, const uint8_t* line, const uint8_t* q, int32_t row_sum) {
  const __m256i mask = _mm256_set1_epi8(15);
  const int zero = kType == SWY_I8 ? 128 : kType == SWY_I4 ? 8 : kType == SWY_MXFP4 ? kZeroE2m1 : 0;
  const auto unsigned_of = [](__m256i nibbles) {
    if constexpr (kType != SWY_MXFP4) return nibbles;
    return _mm256_add_epi8(looked_up(kTwiceE2m1, nibbles), _mm256_set1_epi8(kZeroE2m1));
  };
  Halves sums{_mm256_set1_epi32(-zero * row_sum), _mm256_set1_epi32(-zero * row_sum)};
  const uint32_t step = kType == SWY_I8 ? 4 : 8;
  for (uint32_t k = 0; k < s.block; k += step, line += 64) {
    const __m256i w0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line));
    const __m256i w1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line + 32));
    const int32_t x0 = word_at(q + k);
    if constexpr (kType == SWY_I8) {
      sums.low = add_bytes(sums.low, w0, x0);
      sums.high = add_bytes(sums.high, w1, x0);
    } else {
      const __m256i x = _mm256_set1_epi32(x0), y = _mm256_set1_epi32(word_at(q + k + 4));
      sums.low = add_nibbles(sums.low, unsigned_of(_mm256_and_si256(w0, mask)), x);
      sums.high = add_nibbles(sums.high, unsigned_of(_mm256_and_si256(w1, mask)), x);
      sums.low = add_nibbles(sums.low, unsigned_of(_mm256_and_si256(_mm256_srli_epi16(w0, 4), mask)), y);
      sums.high = add_nibbles(sums.high, unsigned_of(_mm256_and_si256(_mm256_srli_epi16(w1, 4), mask)), y);
    }
  }
  return sums;
}

// 8 rows' scales.
template <swy_dtype kType>
__m256 scales_at(const uint8_t* p) {
  if constexpr (kType != SWY_MXFP4) return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i bits =
      _mm256_slli_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))), 23);
  return _mm256_mul_ps(_mm256_castsi256_ps(_mm256_max_epu32(bits, _mm256_set1_epi32(kLeastE8m0))),
                       _mm256_set1_ps(0.5f));
}
__m256 halves_at(const uint8_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }

template <swy_dtype kType>
void row_by_panel(const PanelShape& s, const uint8_t* panel, const RowFormat& format, const uint8_t* row, float* out) {
  __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
  for (uint64_t b = 0; b < s.blocks; ++b) {
    const Halves sums = block_sums<kType>(s, panel + b * s.block_bytes, row + b * s.block, sum_at(row, format, b));
    const uint8_t* scales = panel + s.scales_at + (s.groups == 1 ? 0 : b * s.group_bytes);
    const __m256 x_scale = _mm256_set1_ps(scale_at(row, format, b));
    low = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sums.low), x_scale), scales_at<kType>(scales), low);
    high = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sums.high), x_scale),
                           scales_at<kType>(scales + s.group_bytes / 2), high);
    if constexpr (kType == SWY_I4A) {
      const uint8_t* offsets = panel + s.offsets_at + (s.groups == 1 ? 0 : b * kPanelRows * 2);
      const __m256 sum = _mm256_set1_ps(static_cast<float>(sum_at(row, format, b)) * scale_at(row, format, b));
      low = _mm256_fmadd_ps(sum, halves_at(offsets), low);
      high = _mm256_fmadd_ps(sum, halves_at(offsets + 16), high);
    }
  }
  _mm256_storeu_ps(out, low);
  _mm256_storeu_ps(out + 8, high);
}

}  // namespace

void multiply_avx2(const PanelShape& s, const uint8_t* panel, const RowFormat& format, const uint8_t* rows, uint32_t m,
                   float* out) {
  const auto f = s.dtype == SWY_I8    ? row_by_panel<SWY_I8>
                 : s.dtype == SWY_I4  ? row_by_panel<SWY_I4>
                 : s.dtype == SWY_I4A ? row_by_panel<SWY_I4A>
                                      : row_by_panel<SWY_MXFP4>;
  for (uint32_t r = 0; r < m; ++r) f(s, panel, format, rows + r * format.bytes, out + r * kPanelRows);
}

}  // namespace cpu::detail
