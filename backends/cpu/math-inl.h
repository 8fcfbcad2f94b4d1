// Vector functions that several operations use. Included once per target (simd.h).
#if defined(CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CPU_MATH_INL_H_
#undef CPU_MATH_INL_H_
#else
#define CPU_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;

// exp(x) with a relative error below 2e-7; 0 below -87, saturated above 88. Degree-6 polynomial on [-ln2/2, ln2/2]
// (Cephes' expf coefficients).
HWY_INLINE V exp(V x) {
  const F d;
  const hn::RebindToSigned<F> di;
  x = hn::Min(hn::Max(x, hn::Set(d, -87.3f)), hn::Set(d, 88.3f));
  const auto n = hn::NearestInt(hn::Mul(x, hn::Set(d, 1.44269504f)));
  const V nf = hn::ConvertTo(d, n);
  V r = hn::NegMulAdd(nf, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(nf, hn::Set(d, -2.12194440e-4f), r);
  V p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::MulAdd(hn::Mul(r, r), p, hn::Add(r, hn::Set(d, 1.0f)));
  const auto scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
  return hn::Mul(p, scale);
}

HWY_INLINE V sigmoid(V x) {
  const F d;
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exp(hn::Neg(x))));
}
HWY_INLINE V silu(V x) { return hn::Mul(x, sigmoid(x)); }

// Calls f(i, count) over [0, n): whole vectors, then one partial one. Loads and stores take `count` lanes.
template <class Body>
HWY_INLINE void each_vector(uint64_t n, Body body) {
  const uint64_t lanes = hn::Lanes(F());
  uint64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, lanes);
  if (i < n) body(i, n - i);
}
// The first `count` lanes from p, aligned or not, and zeros. Where the instruction set has no masked load of such
// lanes, Highway's reads a whole vector instead: beyond what is there, and from aligned addresses only.
template <class D>
HWY_INLINE hn::Vec<D> load_part(D d, const hn::TFromD<D>* p, uint64_t count) {
  constexpr bool kMasked = HWY_TARGET == HWY_AVX3 || (HWY_TARGET == HWY_AVX2 && sizeof(hn::TFromD<D>) >= 4);
  if constexpr (kMasked) return hn::MaskedLoad(hn::FirstN(d, count), d, p);
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(D())] = {};
  std::memcpy(lanes, p, count * sizeof(hn::TFromD<D>));
  return hn::Load(d, lanes);
}
HWY_INLINE V load(const float* p, uint64_t count) {
  const F d;
  return count == hn::Lanes(d) ? hn::LoadU(d, p) : load_part(d, p, count);
}
HWY_INLINE void store(V v, float* p, uint64_t count) {
  const F d;
  if (count == hn::Lanes(d)) {
    hn::StoreU(v, d, p);
  } else {
    hn::BlendedStore(v, hn::FirstN(d, count), d, p);
  }
}
HWY_INLINE float sum_of(V v) { return hn::GetLane(hn::SumOfLanes(F(), v)); }

HWY_INLINE float dot(const float* a, const float* b, uint64_t n) {
  V sum = hn::Zero(F());
  each_vector(n, [&](uint64_t i, uint64_t count) { sum = hn::MulAdd(load(a + i, count), load(b + i, count), sum); });
  return sum_of(sum);
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
HWY_AFTER_NAMESPACE();

#endif
