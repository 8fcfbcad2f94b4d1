// SPDX-License-Identifier: Apache-2.0
// ADD, SILU_MUL, SIGMOID_MUL, SIGMOID_SCALE_ADD: element by element over [rows, width].
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "add.cpp"
#include "simd.h"
// after simd.h
#include <hwy/foreach_target.h>

#include "kernels.h"
#include "math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cpu {
namespace HWY_NAMESPACE {

using Add = swy::Operands<SWY_OP_ADD>;
using SiluMul = swy::Operands<SWY_OP_SILU_MUL>;
using SigmoidMul = swy::Operands<SWY_OP_SIGMOID_MUL>;
using SigmoidScaleAdd = swy::Operands<SWY_OP_SIGMOID_SCALE_ADD>;

// Stores f(a, b) of this member's share of the elements of two inputs.
template <class Body>
HWY_INLINE void each_pair(const swy::Call& call, uint32_t of_a, uint32_t of_b, uint32_t of_y, Body f) {
  const swy_tensor& output = *call.op->outputs[of_y];
  const auto [first, last] = call.split(call.rows(output) * output.dims[1]);
  const float *a = call.input(of_a) + first, *b = call.input(of_b) + first;
  float* y = call.output(of_y) + first;
  each_vector(last - first,
              [&](uint64_t i, uint64_t count) { store(f(load(a + i, count), load(b + i, count)), y + i, count); });
}

void add(const swy::Call& call) {
  each_pair(call, Add::input("x"), Add::input("residual"), Add::output("y"),
            [](V a, V b) HWY_ATTR { return hn::Add(a, b); });
}
void silu_mul(const swy::Call& call) {
  if (call.op->revision != 1 && call.attrs<swy_activation_attrs>().activation == SWY_ACT_CLAMPED) {
    const auto& a = call.attrs<swy_activation_attrs>();
    each_pair(call, SiluMul::input("gate"), SiluMul::input("up"), SiluMul::output("y"),
              [&](V gate, V up) HWY_ATTR { return clamped(gate, up, a.act_alpha, a.act_limit); });
    return;
  }
  each_pair(call, SiluMul::input("gate"), SiluMul::input("up"), SiluMul::output("y"),
            [](V a, V b) HWY_ATTR { return hn::Mul(silu(a), b); });
}
void sigmoid_mul(const swy::Call& call) {
  each_pair(call, SigmoidMul::input("x"), SigmoidMul::input("gate"), SigmoidMul::output("y"),
            [](V a, V b) HWY_ATTR { return hn::Mul(a, sigmoid(b)); });
}
void sigmoid_scale_add(const swy::Call& call) {
  const swy_tensor& output = *call.op->outputs[SigmoidScaleAdd::output("y")];
  const uint64_t width = output.dims[1];
  const float *routed = call.input(SigmoidScaleAdd::input("routed")),
              *shared = call.input(SigmoidScaleAdd::input("shared"));
  const float* gates = call.input(SigmoidScaleAdd::input("gate"));
  float* out = call.output(SigmoidScaleAdd::output("y"));
  const auto [first, last] = call.split(call.rows(output));
  for (uint64_t r = first; r < last; ++r) {
    const V gate = sigmoid(hn::Set(F(), gates[r]));
    const float *a = routed + r * width, *b = shared + r * width;
    float* y = out + r * width;
    each_vector(width, [&](uint64_t i, uint64_t count) {
      store(hn::MulAdd(gate, load(b + i, count), load(a + i, count)), y + i, count);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cpu {
namespace {

constexpr uint32_t kFlags =
    SWY_KERNEL_CAPTURE_SAFE | SWY_KERNEL_DETERMINISTIC | SWY_KERNEL_BATCH_INVARIANT | SWY_KERNEL_IN_PLACE;
bool few_rows(const swy_op& op, const swy_bucket&) {
  return op.inputs[swy::Operands<SWY_OP_ADD>::input("x")]->dims[0] <= 2;
}

constexpr swy::HostKernel kKernels[] = {
    {.name = "add.vector",
     .op = SWY_OP_ADD,
     .flags = kFlags,
     .cost = generic_cost,
     .run =
         [](const swy::Call& call) {
           CPU_BEST(add)
           (call);
         },
     .serial = few_rows},
    {.name = "silu_mul.vector",
     .op = SWY_OP_SILU_MUL,
     .flags = kFlags,
     .cost = generic_cost,
     .run =
         [](const swy::Call& call) {
           CPU_BEST(silu_mul)
           (call);
         },
     .op_revision = 2},
    {.name = "sigmoid_mul.vector",
     .op = SWY_OP_SIGMOID_MUL,
     .flags = kFlags,
     .cost = generic_cost,
     .run =
         [](const swy::Call& call) {
           CPU_BEST(sigmoid_mul)
           (call);
         }},
    {.name = "sigmoid_scale_add.vector",
     .op = SWY_OP_SIGMOID_SCALE_ADD,
     .flags = kFlags,
     .cost = generic_cost,
     .run =
         [](const swy::Call& call) {
           CPU_BEST(sigmoid_scale_add)
           (call);
         }},
};

}  // namespace

std::span<const swy::HostKernel> add_kernels() { return kKernels; }

}  // namespace cpu
#endif
