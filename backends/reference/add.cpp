// SPDX-License-Identifier: Apache-2.0
// ADD, SILU_MUL, SIGMOID_MUL, SIGMOID_SCALE_ADD: element by element over [rows, width].
#include "arithmetic.h"
#include "kernels.h"

namespace reference {
namespace {

// Calls f(i) for this member's elements of output 0.
template <class F>
void each(const swy::Call& call, F f) {
  const auto [first, last] = call.split(call.rows(*call.op->outputs[0]) * call.op->outputs[0]->dims[1]);
  for (uint64_t i = first; i < last; ++i) call.output(0)[i] = f(i);
}

void add(const swy::Call& call) {
  each(call, [&](uint64_t i) { return call.input(0)[i] + call.input(1)[i]; });
}
void silu_mul(const swy::Call& call) {
  each(call, [&](uint64_t i) { return static_cast<float>(silu(call.input(0)[i]) * call.input(1)[i]); });
}
void sigmoid_mul(const swy::Call& call) {
  each(call, [&](uint64_t i) { return static_cast<float>(call.input(0)[i] * sigmoid(call.input(1)[i])); });
}
void sigmoid_scale_add(const swy::Call& call) {
  const uint64_t width = call.op->outputs[0]->dims[1];
  each(call, [&](uint64_t i) {
    return static_cast<float>(call.input(0)[i] + sigmoid(call.input(2)[i / width]) * call.input(1)[i]);
  });
}

constexpr uint32_t kFlags =
    SWY_KERNEL_CAPTURE_SAFE | SWY_KERNEL_DETERMINISTIC | SWY_KERNEL_BATCH_INVARIANT | SWY_KERNEL_IN_PLACE;
constexpr swy::HostKernel kKernels[] = {
    {.name = "add.plain", .op = SWY_OP_ADD, .flags = kFlags, .cost = generic_cost, .run = add},
    {.name = "silu_mul.plain", .op = SWY_OP_SILU_MUL, .flags = kFlags, .cost = generic_cost, .run = silu_mul},
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
