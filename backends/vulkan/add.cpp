// SPDX-License-Identifier: Apache-2.0
// ADD, SILU_MUL, SIGMOID_MUL, SIGMOID_SCALE_ADD: element by element over [rows, width] (add.comp).
#include "kernels.h"

namespace gpu {
namespace {

#include "add.comp.h"
constexpr Shader kAdd = SWY_SHADER(add_comp);

swy_status record_pair(const Recording& r) {
  struct {
    uint64_t a, b, g, y, step;
    uint32_t width, domain;
  } push{};
  const swy_tensor& x = *r.op.inputs[0];
  const Span a = r.operands.input(0), b = r.operands.input(1), y = r.operands.output(0);
  const Span g = r.op.id == SWY_OP_SIGMOID_SCALE_ADD ? r.operands.input(2) : Span{};
  push = {a.address, b.address, g.address, y.address, r.step(), static_cast<uint32_t>(x.dims[1]), x.rows};
  const Grid grid{at_most(ceil_div(x.dims[1], kThreads), 64), at_most(static_cast<uint32_t>(x.dims[0]), 4096)};
  return launch(r, kAdd, {r.op.id}, grid, push, {a, b, g}, {y});
}

double cost_pair(const swy_op& op, const swy_bucket&) { return cost_of(row_bytes(op), 0); }

constexpr Kernel pair_kernel(const char* name, uint32_t op) {
  return {name, op, kInvariant | SWY_KERNEL_IN_PLACE, SWY_F32, nullptr, cost_pair, nullptr, record_pair};
}
constexpr Kernel kKernels[] = {pair_kernel("add.plain", SWY_OP_ADD), pair_kernel("silu_mul.plain", SWY_OP_SILU_MUL),
                               pair_kernel("sigmoid_mul.plain", SWY_OP_SIGMOID_MUL),
                               pair_kernel("sigmoid_scale_add.plain", SWY_OP_SIGMOID_SCALE_ADD)};

}  // namespace

std::span<const Kernel> add_kernels() { return kKernels; }

}  // namespace gpu
