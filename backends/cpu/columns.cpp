// SPDX-License-Identifier: Apache-2.0
// What happens to the products of a panel: element-wise work on [m, 16].
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "columns.cpp"
#include "simd.h"
// after simd.h
#include <hwy/foreach_target.h>

#include "math-inl.h"
#include "projection.h"

HWY_BEFORE_NAMESPACE();
namespace cpu {
namespace HWY_NAMESPACE {

template <class Body>
HWY_INLINE void each_of_pair(const float* gate, const float* up, uint32_t m, uint32_t columns, uint64_t stride,
                             float* to, Body act) {
  for (uint32_t r = 0; r < m; ++r, gate += kPanelRows, up += kPanelRows, to += stride) {
    each_vector(columns, [&](uint64_t i, uint64_t count) {
      store(act(load(gate + i, count), load(up + i, count), i, count), to + i, count);
    });
  }
}

void activate_columns(const Activation& a, const float* gate, const float* up, uint32_t m, uint32_t columns,
                      uint64_t stride, float* to) {
  if (a.kind == SWY_ACT_SILU && a.gate_bias == nullptr) {
    each_of_pair(gate, up, m, columns, stride, to,
                 [](V g, V u, uint64_t, uint64_t) HWY_ATTR { return hn::Mul(silu(g), u); });
    return;
  }
  each_of_pair(gate, up, m, columns, stride, to, [&](V g, V u, uint64_t i, uint64_t count) HWY_ATTR {
    if (a.gate_bias != nullptr) {
      g = hn::Add(g, load(a.gate_bias + i, count));
      u = hn::Add(u, load(a.up_bias + i, count));
    }
    return a.kind == SWY_ACT_SILU ? hn::Mul(silu(g), u) : clamped(g, u, a.alpha, a.limit);
  });
}

void put_columns(const float* products, uint32_t m, uint32_t columns, uint64_t at, const RowTarget& target) {
  const F d;
  for (uint32_t r = 0; r < m; ++r, products += kPanelRows) {
    const V factor = hn::Set(d, target.factors == nullptr ? 1.0f : target.factors[r]);
    each_vector(columns, [&](uint64_t i, uint64_t count) {
      const V before = target.add == nullptr ? hn::Zero(d) : load(target.add[r] + at + i, count);
      V product = load(products + i, count);
      if (target.bias != nullptr) product = hn::Add(product, load(target.bias + at + i, count));
      store(hn::MulAdd(product, factor, before), target.rows[r] + at + i, count);
    });
  }
}

void sum_columns(const float* products, const float* factors, uint32_t n, float* sum) {
  const F d;
  each_vector(kPanelRows, [&](uint64_t i, uint64_t count) {
    V total = hn::Zero(d);
    for (uint32_t j = 0; j < n; ++j) {
      total = hn::MulAdd(load(products + j * kPanelRows + i, count), hn::Set(d, factors[j]), total);
    }
    store(total, sum + i, count);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cpu {
void activate_columns(const Activation& act, const float* gate, const float* up, uint32_t m, uint32_t columns,
                      uint64_t stride, float* to) {
  CPU_BEST(activate_columns)(act, gate, up, m, columns, stride, to);
}
void put_columns(const float* products, uint32_t m, uint32_t columns, uint64_t at, const RowTarget& target) {
  CPU_BEST(put_columns)(products, m, columns, at, target);
}
void sum_columns(const float* products, const float* factors, uint32_t n, float* sum) {
  CPU_BEST(sum_columns)(products, factors, n, sum);
}
}  // namespace cpu
#endif
