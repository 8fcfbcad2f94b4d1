// SPDX-License-Identifier: Apache-2.0
// Rotation of one row's heads by its position. Included once per target (simd.h).
#if defined(CPU_ROPE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CPU_ROPE_INL_H_
#undef CPU_ROPE_INL_H_
#else
#define CPU_ROPE_INL_H_
#endif

#include "math-inl.h"
#include "rope.h"
// vectors of cosines and sines
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace cpu {
namespace HWY_NAMESPACE {

// Cosines and sines of position * rates[i], times `scale`, for `half` rates; whole vectors of them.
HWY_INLINE void turns_of(uint32_t position, const double* rates, uint32_t half, double scale, float* cosines,
                         float* sines) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> f;
  const auto factor = hn::Set(d, scale);
  for (uint32_t i = 0; i < half; i += static_cast<uint32_t>(hn::Lanes(d))) {
    const auto angle = hn::Mul(hn::Set(d, static_cast<double>(position)), hn::Load(d, rates + i));
    // Less whole turns; the first part of 2 pi has so few bits that its multiples are exact.
    const auto whole = hn::Round(hn::Mul(angle, hn::Set(d, 0.15915494309189535)));
    const auto near = hn::Sub(angle, hn::Mul(whole, hn::Set(d, 6.28318530693650245668)));
    const auto rest = hn::Sub(near, hn::Mul(whole, hn::Set(d, 2.43084020260247689973e-10)));
    hn::StoreU(hn::DemoteTo(f, hn::Mul(hn::Cos(d, rest), factor)), f, cosines + i);
    hn::StoreU(hn::DemoteTo(f, hn::Mul(hn::Sin(d, rest), factor)), f, sines + i);
  }
}

// The heads of one row. `turn` reads the position once, `head` then rotates any number of heads.
class RowRotation {
 public:
  HWY_INLINE RowRotation(const swy::Call& call, const Rotation& r)
      : half_(r.rotary_dim / 2),
        scale_(r.scale),
        rates_(r.rates + call.rank() * r.stride),
        cosines_(r.turns + call.rank() * 2 * r.stride),
        sines_(cosines_ + r.stride) {}

  HWY_INLINE void turn(uint32_t position) const { turns_of(position, rates_, half_, scale_, cosines_, sines_); }
  // y [rotary_dim] = x, rotated in pairs i and i + rotary_dim / 2; y may be x.
  HWY_INLINE void head(const float* x, float* y) const {
    each_vector(half_, [&](uint64_t i, uint64_t count) {
      const V u = load(x + i, count), v = load(x + half_ + i, count);
      const V c = load(cosines_ + i, count), s = load(sines_ + i, count);
      store(hn::Sub(hn::Mul(u, c), hn::Mul(v, s)), y + i, count);
      store(hn::MulAdd(v, c, hn::Mul(u, s)), y + half_ + i, count);
    });
  }

 private:
  uint32_t half_;
  float scale_;
  const double* rates_;
  float *cosines_, *sines_;
};

}  // namespace HWY_NAMESPACE
}  // namespace cpu
HWY_AFTER_NAMESPACE();

#endif
