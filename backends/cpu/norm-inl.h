// SPDX-License-Identifier: Apache-2.0
// Norms of one row, and the plain weights that they read. Included once per target (simd.h).
#if defined(CPU_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CPU_NORM_INL_H_
#undef CPU_NORM_INL_H_
#else
#define CPU_NORM_INL_H_
#endif

#include <cmath>

#include "kernels.h"
#include "math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cpu {
namespace HWY_NAMESPACE {

// A weight [width] in fp32 or bf16.
class Plain {
 public:
  Plain(const swy::Call& call, uint32_t index)
      : data_(call.weights[index]), floats_(call.op->weights[index]->dtype == SWY_F32) {}
  HWY_INLINE V at(uint64_t i, uint64_t count) const {
    const F d;
    if (floats_) return load(static_cast<const float*>(data_) + i, count);
    const hn::Rebind<hwy::bfloat16_t, F> d16;
    const hn::Rebind<uint16_t, F> du;
    const auto* p = static_cast<const uint16_t*>(data_) + i;
    if (count == hn::Lanes(d)) return hn::PromoteTo(d, hn::BitCast(d16, hn::LoadU(du, p)));
    return hn::PromoteTo(d, hn::BitCast(d16, load_part(du, p, count)));
  }
  HWY_INLINE float one(uint64_t i) const {
    return floats_ ? static_cast<const float*>(data_)[i] : swy_bf16_to_f32(static_cast<const uint16_t*>(data_)[i]);
  }

 private:
  const void* data_;
  bool floats_;
};

HWY_INLINE float inverse_rms(const float* x, uint64_t n, float eps) {
  return 1.0f / std::sqrt(dot(x, x, n) / static_cast<float>(n) + eps);
}

// y = x * rsqrt(mean x^2 + eps) * (w + bias); y may be x.
HWY_INLINE void rms_norm_row(const float* x, const Plain& w, float bias, float eps, uint64_t n, float* y) {
  const V scale = hn::Set(F(), inverse_rms(x, n, eps)), b = hn::Set(F(), bias);
  each_vector(n, [&](uint64_t i, uint64_t count) {
    store(hn::Mul(hn::Mul(load(x + i, count), scale), hn::Add(w.at(i, count), b)), y + i, count);
  });
}

// y = rms_norm(x) * w * silu(z); y may be x.
HWY_INLINE void gated_rms_norm_row(const float* x, const float* z, const Plain& w, float eps, uint64_t n, float* y) {
  const V scale = hn::Set(F(), inverse_rms(x, n, eps));
  each_four_vectors(
      n, [&](auto width, uint64_t i, uint64_t count) __attribute__((always_inline)) {
        const uint64_t L = hn::Lanes(F());
        V g[width];
        each_of<width>([&](uint32_t k) { g[k] = load(z + i + k * L, count); });
        silu(g);
        each_of<width>([&](uint32_t k) {
          const V normed = hn::Mul(hn::Mul(load(x + i + k * L, count), scale), w.at(i + k * L, count));
          store(hn::Mul(normed, g[k]), y + i + k * L, count);
        });
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
HWY_AFTER_NAMESPACE();

#endif
