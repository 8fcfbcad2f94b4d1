// SPDX-License-Identifier: Apache-2.0
// ADD, SILU_MUL, SIGMOID_MUL, SIGMOID_SCALE_ADD: element by element over [rows, width] (add.comp).
#include "kernels.h"

namespace gpu {
namespace {

#include "add.comp.h"
constexpr Shader kAdd = SWY_SHADER(add_comp);

// What the operation reads; g is the gate of SIGMOID_SCALE_ADD.
struct Pair {
  Span a, b, g;
};
Pair pair_of(const Recording& r) {
  const Operands& o = r.operands;
  switch (r.op.id) {
    case SWY_OP_ADD:
      return {o.input("x"), o.input("residual"), {}};
    case SWY_OP_SILU_MUL:
      return {o.input("gate"), o.input("up"), {}};
    case SWY_OP_SIGMOID_MUL:
      return {o.input("x"), o.input("gate"), {}};
    default:
      return {o.input("routed"), o.input("shared"), o.input("gate")};
  }
}

swy_status record_pair(const Recording& r) {
  struct {
    uint64_t a, b, g, y, step;
    uint32_t width, domain;
  } push{};
  const swy_tensor& t = swy::tensor(r.op, "y");
  const auto [a, b, g] = pair_of(r);
  const Span y = r.operands.output("y");
  push = {a.address, b.address, g.address, y.address, r.step(), static_cast<uint32_t>(t.dims[1]), t.rows};
  const Grid grid{at_most(ceil_div(t.dims[1], kThreads), 64), at_most(static_cast<uint32_t>(t.dims[0]), 4096)};
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
