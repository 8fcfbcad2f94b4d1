// SPDX-License-Identifier: Apache-2.0
#include "rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rows.cpp"
#include "simd.h"
// after simd.h
#include <hwy/foreach_target.h>

#include <cstring>

#include "math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cpu {
namespace HWY_NAMESPACE {

void quantize_row(const float* x, const RowFormat& format, uint8_t* to) {
  const F d;
  const hn::RebindToSigned<F> di;
  const hn::Rebind<int16_t, F> d16;
  const hn::Rebind<int8_t, F> d8;
  auto* quants = reinterpret_cast<int8_t*>(to);
  auto* scales = reinterpret_cast<float*>(to + format.scales_at);
  auto* sums = reinterpret_cast<int32_t*>(to + format.sums_at);
  for (uint64_t b = 0; b < format.blocks; ++b) {
    const uint64_t begin = b * format.block;
    const uint64_t n = format.width - begin < format.block ? format.width - begin : format.block;
    V top = hn::Zero(d);
    each_vector(n, [&](uint64_t i, uint64_t count) { top = hn::Max(top, hn::Abs(load(x + begin + i, count))); });
    const float amax = hn::GetLane(hn::MaxOfLanes(d, top));
    const bool zero = amax < 1e-30f;  // 127 / amax would overflow
    const V inverse = hn::Set(d, zero ? 0.0f : 127.0f / amax);
    auto sum = hn::Zero(di);
    // The last store of a short block goes past its end, into padding or into the next block, which is written later.
    each_vector(n, [&](uint64_t i, uint64_t count) {
      // Values that are not finite become any integer, but sums of integers must not overflow.
      const auto q =
          hn::Clamp(hn::NearestInt(hn::Mul(load(x + begin + i, count), inverse)), hn::Set(di, -127), hn::Set(di, 127));
      sum = hn::Add(sum, q);
      const auto bytes = hn::DemoteTo(d8, hn::DemoteTo(d16, q));
      hn::StoreU(bytes, d8, quants + begin + i);
    });
    scales[b] = zero ? 0.0f : amax / 127.0f;
    sums[b] = hn::GetLane(hn::SumOfLanes(di, sum));
  }
  const uint64_t end = format.width;
  const uint64_t lanes = (end + hn::Lanes(d) - 1) / hn::Lanes(d) * hn::Lanes(d);
  if (lanes < format.scales_at) std::memset(quants + lanes, 0, format.scales_at - lanes);
}

// bf16 of x, to nearest even, in the upper halves.
HWY_INLINE hn::Vec<hn::RebindToUnsigned<F>> rounded(V x) {
  const hn::RebindToUnsigned<F> du;
  const auto u = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u));
  return hn::And(hn::Add(u, hn::Add(odd, hn::Set(du, 0x7fffu))), hn::Set(du, 0xffff0000u));
}

void round_row(const float* x, const RowFormat& format, uint8_t* to) {
  const F d;
  const hn::Rebind<uint16_t, F> d16;
  std::memset(to, 0, format.bytes);
  auto* head = reinterpret_cast<uint16_t*>(to);
  auto* rest = reinterpret_cast<uint16_t*>(to + format.rest_at);
  each_vector(format.width, [&](uint64_t i, uint64_t count) {
    const V v = load(x + i, count);
    const auto high = rounded(v);
    hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(high)), d16, head + i);
    const auto low = rounded(hn::Sub(v, hn::BitCast(d, high)));
    hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(low)), d16, rest + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cpu {
void encode_row(const float* x, const RowFormat& format, uint8_t* to) {
  (format.kind == RowKind::int8 ? CPU_BEST(quantize_row) : CPU_BEST(round_row))(x, format, to);
}
}  // namespace cpu
#endif
