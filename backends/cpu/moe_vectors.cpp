// The element-wise parts of MOE.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "moe_vectors.cpp"
#include "simd.h"
// after simd.h
#include <hwy/foreach_target.h>

#include "math-inl.h"
#include "moe.h"

HWY_BEFORE_NAMESPACE();
namespace cpu {
namespace HWY_NAMESPACE {

void silu_mul_columns(const float* gate, const float* up, uint32_t m, uint32_t columns, uint64_t stride, float* to) {
  for (uint32_t r = 0; r < m; ++r, gate += kPanelRows, up += kPanelRows, to += stride) {
    each_vector(columns, [&](uint64_t i, uint64_t count) {
      store(hn::Mul(silu(load(gate + i, count)), load(up + i, count)), to + i, count);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cpu {
void silu_mul_columns(const float* gate, const float* up, uint32_t m, uint32_t columns, uint64_t stride, float* to) {
  CPU_BEST(silu_mul_columns)(gate, up, m, columns, stride, to);
}
}  // namespace cpu
#endif
