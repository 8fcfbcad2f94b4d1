// SPDX-License-Identifier: Apache-2.0
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
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;

// N vectors go through the steps of a function side by side. A processor's scheduler holds fewer instructions than two
// or three of these chains have, so chains one after the other would wait for each other.
template <uint32_t N, class Step>
HWY_INLINE void each_of(Step step) {
  for (uint32_t i = 0; i < N; ++i) step(i);
}

// exp(x) with a relative error below 2e-7; 0 below -87, saturated above 88. Degree-6 polynomial on [-ln2/2, ln2/2]
// (Cephes' expf coefficients).
template <uint32_t N>
HWY_INLINE void exp(V (&x)[N]) {
  const F d;
  const hn::RebindToSigned<F> di;
  V shifted[N], n[N], p[N];
  const auto more = [&](float c) { each_of<N>([&](uint32_t i) { p[i] = hn::MulAdd(p[i], x[i], hn::Set(d, c)); }); };
  each_of<N>([&](uint32_t i) { x[i] = hn::Min(hn::Max(x[i], hn::Set(d, -87.3f)), hn::Set(d, 88.3f)); });
  // The unit of the sum's last bit is 1, so adding rounds to the nearest whole number.
  const V whole = hn::Set(d, 12582912.0f);  // 1.5 * 2^23
  each_of<N>([&](uint32_t i) { shifted[i] = hn::MulAdd(x[i], hn::Set(d, 1.44269504f), whole); });
  each_of<N>([&](uint32_t i) { n[i] = hn::Sub(shifted[i], whole); });
  each_of<N>([&](uint32_t i) { x[i] = hn::NegMulAdd(n[i], hn::Set(d, 0.693359375f), x[i]); });
  each_of<N>([&](uint32_t i) { x[i] = hn::NegMulAdd(n[i], hn::Set(d, -2.12194440e-4f), x[i]); });
  each_of<N>([&](uint32_t i) { p[i] = hn::Set(d, 1.9875691500e-4f); });
  more(1.3981999507e-3f);
  more(8.3334519073e-3f);
  more(4.1665795894e-2f);
  more(1.6666665459e-1f);
  more(5.0000001201e-1f);
  each_of<N>([&](uint32_t i) {
    p[i] = hn::MulAdd(hn::Mul(x[i], x[i]), p[i], hn::Add(x[i], hn::Set(d, 1.0f)));
    const auto scale = hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, shifted[i])), hn::Set(di, 127 << 23));
    x[i] = hn::Mul(p[i], hn::BitCast(d, scale));
  });
}
HWY_INLINE V exp(V x) {
  V one[1] = {x};
  exp(one);
  return one[0];
}

// 1 / (1 + exp(-x)), as exact as with a division. For 16 lanes a division takes longer than an estimate of 14 bits and
// one step of Newton's method.
template <uint32_t N>
HWY_INLINE void sigmoid(V (&x)[N]) {
  const V one = hn::Set(F(), 1.0f);
  each_of<N>([&](uint32_t i) { x[i] = hn::Neg(x[i]); });
  exp(x);
  each_of<N>([&](uint32_t i) { x[i] = hn::Add(x[i], one); });
  if constexpr (HWY_TARGET == HWY_AVX3) {
    V r[N];
    each_of<N>([&](uint32_t i) { r[i] = hn::ApproximateReciprocal(x[i]); });
    each_of<N>([&](uint32_t i) { x[i] = hn::MulAdd(r[i], hn::NegMulAdd(x[i], r[i], one), r[i]); });
  } else {
    each_of<N>([&](uint32_t i) { x[i] = hn::Div(one, x[i]); });
  }
}
HWY_INLINE V sigmoid(V x) {
  V one[1] = {x};
  sigmoid(one);
  return one[0];
}
template <uint32_t N>
HWY_INLINE void silu(V (&x)[N]) {
  V y[N];
  each_of<N>([&](uint32_t i) { y[i] = x[i]; });
  sigmoid(y);
  each_of<N>([&](uint32_t i) { x[i] = hn::Mul(x[i], y[i]); });
}
HWY_INLINE V silu(V x) { return hn::Mul(x, sigmoid(x)); }
// SWY_ACT_CLAMPED.
HWY_INLINE V clamped(V gate, V up, float alpha, float limit) {
  const F d;
  const V most = hn::Set(d, limit), g = hn::Min(gate, most);
  const V u = hn::Min(hn::Max(up, hn::Neg(most)), most);
  return hn::Mul(hn::Mul(g, sigmoid(hn::Mul(g, hn::Set(d, alpha)))), hn::Add(u, hn::Set(d, 1.0f)));
}

// Calls f(i, count) over [0, n): whole vectors, then one partial one. Loads and stores take `count` lanes.
template <class Body>
HWY_INLINE void each_vector(uint64_t n, Body body) {
  const uint64_t lanes = hn::Lanes(F());
  uint64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, lanes);
  if (i < n) body(i, n - i);
}
// The same with four whole vectors at a time as far as they go: f(constant 4 or 1, i, count of lanes in each).
template <class Body>
HWY_INLINE void each_four_vectors(uint64_t n, Body body) {
  const uint64_t lanes = hn::Lanes(F());
  uint64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) body(std::integral_constant<uint32_t, 4>(), i, lanes);
  each_vector(n - i, [&](uint64_t j, uint64_t count) { body(std::integral_constant<uint32_t, 1>(), i + j, count); });
}
// The first `count` lanes from p, aligned or not, and zeros. If the instruction set has no masked load of such lanes,
// Highway's version would read a whole vector: past the end, and from aligned addresses only.
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
