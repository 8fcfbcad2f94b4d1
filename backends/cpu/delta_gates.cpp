// SPDX-License-Identifier: Apache-2.0
// DELTA_GATES: beta = sigmoid(b), g = -exp(a_log) * softplus(a + dt_bias), over [rows, value_heads].
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "delta_gates.cpp"
#include "simd.h"
// after simd.h
#include <hwy/foreach_target.h>

#include "delta_gates-inl.h"
#include "norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cpu {
namespace HWY_NAMESPACE {

using DeltaGates = swy::Operands<SWY_OP_DELTA_GATES>;

void delta_gates(const swy::Call& call) {
  const uint64_t heads = call.attrs<swy_gated_delta_attrs>().value_heads;
  const Plain a_log(call, DeltaGates::weight("a_log")), dt_bias(call, DeltaGates::weight("dt_bias"));
  const auto [first, last] = call.split(call.step->rows);
  for (uint64_t r = first; r < last; ++r) {
    const float *b = call.input(DeltaGates::input("b")) + r * heads,
                *a = call.input(DeltaGates::input("a")) + r * heads;
    float *beta = call.output(DeltaGates::output("beta")) + r * heads,
          *g = call.output(DeltaGates::output("g")) + r * heads;
    each_vector(heads, [&](uint64_t i, uint64_t count) {
      const V steps = softplus(hn::Add(load(a + i, count), dt_bias.at(i, count)));
      store(sigmoid(load(b + i, count)), beta + i, count);
      store(hn::Neg(hn::Mul(exp(a_log.at(i, count)), steps)), g + i, count);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cpu {
namespace {

constexpr swy::HostKernel kKernels[] = {
    {.name = "delta_gates.vector",
     .op = SWY_OP_DELTA_GATES,
     .cost = generic_cost,
     .run =
         [](const swy::Call& call) {
           CPU_BEST(delta_gates)
           (call);
         },
     .serial = small_work},
};

}  // namespace

std::span<const swy::HostKernel> delta_gates_kernels() { return kKernels; }

}  // namespace cpu
#endif
