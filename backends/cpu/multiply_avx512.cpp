// SPDX-License-Identifier: Apache-2.0
// multiply with AVX-512 VNNI: a line of weights times 4 broadcast activations, 64 products an instruction.
#include <immintrin.h>

#include "multiply.h"

namespace cpu::detail {
namespace {

// Nibbles without signs, in the form in which they multiply.
template <swy_dtype kType>
__m512i unsigned_of(__m512i nibbles) {
  if constexpr (kType != SWY_MXFP4) return nibbles;
  const __m128i table =
      _mm_add_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kTwiceE2m1)), _mm_set1_epi8(kZeroE2m1));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), nibbles);
}

// 16 rows' scales.
template <swy_dtype kType>
__m512 scales_at(const uint8_t* p) {
  if constexpr (kType != SWY_MXFP4) return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  const __m512i bits =
      _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 23);
  return _mm512_mul_ps(_mm512_castsi512_ps(_mm512_max_epu32(bits, _mm512_set1_epi32(kLeastE8m0))),
                       _mm512_set1_ps(0.5f));
}

// M rows against one panel. Two chains of sums per row hide the latency of the products.
template <uint32_t M, swy_dtype kType>
void rows_by_panel(const PanelShape& s, const uint8_t* panel, const RowFormat& format, const uint8_t* rows,
                   float* out) {
  const __m512i low = _mm512_set1_epi8(15);
  const uint32_t step = kType == SWY_I8 ? 8 : 16;  // elements along the width per iteration: two lines of quants
  const uint8_t* line = panel;
  __m512 total[M];
  for (uint32_t r = 0; r < M; ++r) total[r] = _mm512_setzero_ps();
  for (uint64_t b = 0; b < s.blocks; ++b) {
    __m512i even[M], odd[M];
    for (uint32_t r = 0; r < M; ++r) {
      const int zero = kType == SWY_I8 ? 128 : kType == SWY_I4 ? 8 : kType == SWY_MXFP4 ? kZeroE2m1 : 0;
      even[r] = _mm512_set1_epi32(-zero * sum_at(rows + r * format.bytes, format, b));
      odd[r] = _mm512_setzero_si512();
    }
    const uint8_t* q = rows + b * s.block;
    const auto at = [&](uint32_t r, uint32_t k) { return _mm512_set1_epi32(word_at(q + r * format.bytes + k)); };
    for (uint32_t k = 0; k < s.block; k += step, line += 128) {
      _mm_prefetch(reinterpret_cast<const char*>(line) + 4096, _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(line) + 4160, _MM_HINT_T0);
      const __m512i w0 = _mm512_loadu_si512(line);
      const __m512i w1 = _mm512_loadu_si512(line + 64);
      if constexpr (kType == SWY_I8) {
        for (uint32_t r = 0; r < M; ++r) {
          even[r] = _mm512_dpbusd_epi32(even[r], w0, at(r, k));
          odd[r] = _mm512_dpbusd_epi32(odd[r], w1, at(r, k + 4));
        }
      } else {
        const auto nibbles = [&](__m512i w) { return unsigned_of<kType>(_mm512_and_si512(w, low)); };
        const __m512i a = nibbles(w0), c = nibbles(w1);
        const __m512i e = nibbles(_mm512_srli_epi16(w0, 4)), f = nibbles(_mm512_srli_epi16(w1, 4));
        for (uint32_t r = 0; r < M; ++r) {
          even[r] = _mm512_dpbusd_epi32(even[r], a, at(r, k));
          odd[r] = _mm512_dpbusd_epi32(odd[r], e, at(r, k + 4));
          even[r] = _mm512_dpbusd_epi32(even[r], c, at(r, k + 8));
          odd[r] = _mm512_dpbusd_epi32(odd[r], f, at(r, k + 12));
        }
      }
    }
    const uint64_t g = s.groups == 1 ? 0 : b * s.group_bytes;
    const __m512 scale = scales_at<kType>(panel + s.scales_at + g);
    for (uint32_t r = 0; r < M; ++r) {
      const float x_scale = scale_at(rows + r * format.bytes, format, b);
      const __m512 dots = _mm512_cvtepi32_ps(_mm512_add_epi32(even[r], odd[r]));
      total[r] = _mm512_fmadd_ps(_mm512_mul_ps(dots, _mm512_set1_ps(x_scale)), scale, total[r]);
      if constexpr (kType == SWY_I4A) {
        const auto sum = static_cast<float>(sum_at(rows + r * format.bytes, format, b)) * x_scale;
        const __m512 offset =
            _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel + s.offsets_at + g)));
        total[r] = _mm512_fmadd_ps(_mm512_set1_ps(sum), offset, total[r]);
      }
    }
  }
  for (uint32_t r = 0; r < M; ++r) _mm512_storeu_ps(out + r * kPanelRows, total[r]);
}

template <swy_dtype kType>
void all_rows(const PanelShape& s, const uint8_t* panel, const RowFormat& format, const uint8_t* rows, uint32_t m,
              float* out) {
  for (; m >= 4; m -= 4, rows += 4 * format.bytes, out += 4 * kPanelRows) {
    rows_by_panel<4, kType>(s, panel, format, rows, out);
  }
  if (m == 3) rows_by_panel<3, kType>(s, panel, format, rows, out);
  if (m == 2) rows_by_panel<2, kType>(s, panel, format, rows, out);
  if (m == 1) rows_by_panel<1, kType>(s, panel, format, rows, out);
}

}  // namespace

void multiply_avx512(const PanelShape& s, const uint8_t* panel, const RowFormat& format, const uint8_t* rows,
                     uint32_t m, float* out) {
  const auto f = s.dtype == SWY_I8    ? all_rows<SWY_I8>
                 : s.dtype == SWY_I4  ? all_rows<SWY_I4>
                 : s.dtype == SWY_I4A ? all_rows<SWY_I4A>
                                      : all_rows<SWY_MXFP4>;
  f(s, panel, format, rows, m, out);
}

}  // namespace cpu::detail
