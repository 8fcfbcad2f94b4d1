// SPDX-License-Identifier: Apache-2.0
// ADD, SILU_MUL, SIGMOID_MUL, SIGMOID_SCALE_ADD: element by element over [rows, width].
#include "arithmetic.h"
#include "kernels.h"

namespace reference {
namespace {

// Sets y[i] = f(i) for this member's elements.
template <class F>
void each(const swy::Call& call, F f) {
  const swy_tensor& y = swy::tensor(*call.op, "y");
  const auto [first, last] = call.split(call.rows(y) * y.dims[1]);
  float* out = call.output("y");
  for (uint64_t i = first; i < last; ++i) out[i] = f(i);
}

void add(const swy::Call& call) {
  const float *x = call.input("x"), *residual = call.input("residual");
  each(call, [&](uint64_t i) { return x[i] + residual[i]; });
}
void silu_mul(const swy::Call& call) {
  const float *gate = call.input("gate"), *up = call.input("up");
  const swy_activation_attrs act = call.op->revision == 1 ? swy_activation_attrs{} : call.attrs<swy_activation_attrs>();
  each(call, [&](uint64_t i) { return static_cast<float>(activate(act, gate[i], up[i])); });
}
void sigmoid_mul(const swy::Call& call) {
  const float *x = call.input("x"), *gate = call.input("gate");
  each(call, [&](uint64_t i) { return static_cast<float>(x[i] * sigmoid(gate[i])); });
}
void sigmoid_scale_add(const swy::Call& call) {
  const uint64_t width = swy::tensor(*call.op, "y").dims[1];
  const float *routed = call.input("routed"), *shared = call.input("shared"), *gate = call.input("gate");
  each(call, [&](uint64_t i) { return static_cast<float>(routed[i] + sigmoid(gate[i / width]) * shared[i]); });
}

constexpr uint32_t kFlags =
    SWY_KERNEL_CAPTURE_SAFE | SWY_KERNEL_DETERMINISTIC | SWY_KERNEL_BATCH_INVARIANT | SWY_KERNEL_IN_PLACE;
constexpr swy::HostKernel kKernels[] = {
    {.name = "add.plain", .op = SWY_OP_ADD, .flags = kFlags, .cost = generic_cost, .run = add},
    {.name = "silu_mul.plain",
     .op = SWY_OP_SILU_MUL,
     .flags = kFlags,
     .cost = generic_cost,
     .run = silu_mul,
     .op_revision = 2},
    {.name = "sigmoid_mul.plain", .op = SWY_OP_SIGMOID_MUL, .flags = kFlags, .cost = generic_cost, .run = sigmoid_mul},
    {.name = "sigmoid_scale_add.plain",
     .op = SWY_OP_SIGMOID_SCALE_ADD,
     .flags = kFlags,
     .cost = generic_cost,
     .run = sigmoid_scale_add},
};

}  // namespace

std::span<const swy::HostKernel> add_kernels() { return kKernels; }

}  // namespace reference
