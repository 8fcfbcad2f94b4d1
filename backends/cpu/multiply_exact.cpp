// SPDX-License-Identifier: Apache-2.0
// multiply_exact: fp32 activations against every encoding.
#include "multiply.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "multiply_exact.cpp"
#include "simd.h"
// after simd.h
#include <hwy/foreach_target.h>

#include "math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cpu {
namespace HWY_NAMESPACE {

// 16 lanes, in as many vectors as they take.
constexpr size_t kLanes = HWY_MAX_BYTES / sizeof(float) < 16 ? HWY_MAX_BYTES / sizeof(float) : 16;
using D = hn::FixedTag<float, kLanes>;
using DI = hn::RebindToSigned<D>;
using DU = hn::RebindToUnsigned<D>;
using VF = hn::Vec<D>;
constexpr size_t kParts = kPanelRows / kLanes;

HWY_INLINE VF halves(const uint8_t* p) {
  const hn::Rebind<hwy::float16_t, D> dh;
  return hn::PromoteTo(D(), hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(p)));
}

// Scales of as many rows as a vector has lanes.
template <swy_dtype kType>
HWY_INLINE VF scales(const uint8_t* p) {
  if constexpr (kType != SWY_MXFP4) return halves(p);
  const auto bits = hn::ShiftLeft<23>(hn::PromoteTo(DU(), hn::LoadU(hn::Rebind<uint8_t, D>(), p)));
  return hn::Mul(hn::BitCast(D(), hn::Max(bits, hn::Set(DU(), kLeastE8m0))), hn::Set(D(), 0.5f));
}

// Of nibbles of mxfp4, one in each lane, twice the values. A lookup gives 0 for a byte with its highest bit.
HWY_INLINE hn::Vec<DI> twice_e2m1(hn::Vec<DU> nibbles) {
  const hn::Repartition<uint8_t, D> d8;
  alignas(16) uint8_t table[16];
  for (int i = 0; i < 16; ++i) table[i] = static_cast<uint8_t>(kTwiceE2m1[i] + kZeroE2m1);
  const auto at = hn::BitCast(d8, hn::Or(nibbles, hn::Set(DU(), 0x80808000u)));
  const auto values = hn::BitCast(DI(), hn::TableLookupBytesOr0(hn::LoadDup128(d8, table), at));
  return hn::Sub(values, hn::Set(DI(), kZeroE2m1));
}

// One vector of weights of a line: `element` selects among the elements that share a 32-bit word.
template <swy_dtype kType>
HWY_INLINE VF weights_at(const uint8_t* line, uint32_t element) {
  const auto words = hn::LoadU(DU(), reinterpret_cast<const uint32_t*>(line));
  if constexpr (kType == SWY_F32) return hn::BitCast(D(), words);
  if constexpr (kType == SWY_BF16) {
    return hn::BitCast(D(), element == 0 ? hn::ShiftLeft<16>(words) : hn::And(words, hn::Set(DU(), 0xffff0000u)));
  }
  const auto shifted = hn::ShiftRightSame(words, static_cast<int>(element));
  const auto quants = hn::And(shifted, hn::Set(DU(), kType == SWY_I8 ? 255u : 15u));
  if constexpr (kType == SWY_MXFP4) return hn::ConvertTo(D(), twice_e2m1(quants));
  const int32_t zero = kType == SWY_I8 ? 128 : kType == SWY_I4 ? 8 : 0;
  return hn::ConvertTo(D(), hn::Sub(hn::BitCast(DI(), quants), hn::Set(DI(), zero)));
}

// M rows against one vector's worth of the panel's rows.
template <uint32_t M, swy_dtype kType>
HWY_INLINE void rows_by_part(const PanelShape& s, const uint8_t* panel, size_t part, const float* rows, uint64_t stride,
                             float* out) {
  constexpr bool kQuants = kType != SWY_F32 && kType != SWY_BF16;
  constexpr uint32_t kPerLine = kType == SWY_F32 ? 1 : kType == SWY_BF16 ? 2 : kType == SWY_I8 ? 4 : 8;
  VF total[M];
  for (uint32_t r = 0; r < M; ++r) total[r] = hn::Zero(D());
  for (uint64_t b = 0; b < s.blocks; ++b) {
    VF sums[2][M], x_sum[M];
    for (uint32_t r = 0; r < M; ++r) sums[0][r] = sums[1][r] = x_sum[r] = hn::Zero(D());
    const uint64_t begin = b * s.block, end = begin + s.block < s.width ? begin + s.block : s.width;
    const uint8_t* line = panel + b * s.block_bytes + part * kLanes * 4;
    for (uint64_t k = begin; k < end; k += kPerLine, line += 64) {
      for (uint32_t e = 0; e < kPerLine && k + e < end; ++e) {
        const uint32_t shift = kType == SWY_I8 ? 8 * e : 8 * (e % 4) + 4 * (e / 4);
        const VF w = weights_at<kType>(line, kQuants ? shift : e);
        for (uint32_t r = 0; r < M; ++r) {
          const VF x = hn::Set(D(), rows[r * stride + k + e]);
          sums[(k + e) % 2][r] = hn::MulAdd(w, x, sums[(k + e) % 2][r]);
          if constexpr (kType == SWY_I4A) x_sum[r] = hn::Add(x_sum[r], x);
        }
      }
    }
    for (uint32_t r = 0; r < M; ++r) {
      const VF sum = hn::Add(sums[0][r], sums[1][r]);
      if constexpr (kQuants) {
        const uint64_t at = (s.groups == 1 ? 0 : b * s.group_bytes) + part * kLanes * (s.group_bytes / kPanelRows);
        total[r] = hn::MulAdd(sum, scales<kType>(panel + s.scales_at + at), total[r]);
        if constexpr (kType == SWY_I4A) total[r] = hn::MulAdd(x_sum[r], halves(panel + s.offsets_at + at), total[r]);
      } else {
        total[r] = hn::Add(total[r], sum);
      }
    }
  }
  for (uint32_t r = 0; r < M; ++r) hn::StoreU(total[r], D(), out + r * kPanelRows + part * kLanes);
}

template <swy_dtype kType>
void rows_by_panel(const PanelShape& s, const uint8_t* panel, const float* rows, uint64_t stride, uint32_t m,
                   float* out) {
  for (; m >= 4; m -= 4, rows += 4 * stride, out += 4 * kPanelRows) {
    for (size_t p = 0; p < kParts; ++p) rows_by_part<4, kType>(s, panel, p, rows, stride, out);
  }
  for (; m > 0; --m, rows += stride, out += kPanelRows) {
    for (size_t p = 0; p < kParts; ++p) rows_by_part<1, kType>(s, panel, p, rows, stride, out);
  }
}

void multiply_exact(const PanelShape& s, const uint8_t* panel, const float* rows, uint64_t stride, uint32_t m,
                    float* out) {
  const auto f = s.dtype == SWY_F32    ? rows_by_panel<SWY_F32>
                 : s.dtype == SWY_BF16 ? rows_by_panel<SWY_BF16>
                 : s.dtype == SWY_I8   ? rows_by_panel<SWY_I8>
                 : s.dtype == SWY_I4   ? rows_by_panel<SWY_I4>
                 : s.dtype == SWY_I4A  ? rows_by_panel<SWY_I4A>
                                       : rows_by_panel<SWY_MXFP4>;
  f(s, panel, rows, stride, m, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cpu {
void multiply_exact(const PanelShape& s, const uint8_t* panel, const float* rows, uint64_t stride, uint32_t m,
                    float* out) {
  CPU_BEST(multiply_exact)(s, panel, rows, stride, m, out);
}
}  // namespace cpu
#endif
