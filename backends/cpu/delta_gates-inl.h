// SPDX-License-Identifier: Apache-2.0
// Arithmetic of the delta rule's gates, for DELTA_GATES and GATED_DELTA. Included once per target (simd.h).
#if defined(CPU_DELTA_GATES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CPU_DELTA_GATES_INL_H_
#undef CPU_DELTA_GATES_INL_H_
#else
#define CPU_DELTA_GATES_INL_H_
#endif

#include "math-inl.h"
// a vector log1p
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace cpu {
namespace HWY_NAMESPACE {

// log(1 + exp(x)).
HWY_INLINE V softplus(V x) {
  const F d;
  return hn::Add(hn::Max(x, hn::Zero(d)), hn::Log1p(d, exp(hn::Neg(hn::Abs(x)))));
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
HWY_AFTER_NAMESPACE();

#endif
