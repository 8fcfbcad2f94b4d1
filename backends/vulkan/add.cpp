// SPDX-License-Identifier: Apache-2.0
// ADD, SILU_MUL, SIGMOID_MUL, SIGMOID_SCALE_ADD: element by element over [rows, width] (add.comp).
#include "activation.h"

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

swy_status launch_pair(const Recording& r, uint32_t op, const Activation& act, const Pair& p, Span y, uint32_t rows,
                       uint32_t width, swy_rows domain) {
  struct {
    uint64_t a, b, g, y, step;
    uint32_t width, domain;
    float alpha, limit;
  } push{};
  push = {p.a.address, p.b.address, p.g.address, y.address, r.step(), width, domain, act.alpha, act.limit};
  const Grid grid{at_most(ceil_div(width, kThreads), 64), at_most(rows, 4096)};
  return launch(r, kAdd, {op, act.clamped}, grid, push, {p.a, p.b, p.g}, {y});
}

swy_status record_pair(const Recording& r) {
  const swy_tensor& t = swy::tensor(r.op, "y");
  const bool may_clamp = r.op.id == SWY_OP_SILU_MUL && r.op.revision > 1;
  const Activation act = may_clamp ? activation_of(r.attrs<swy_activation_attrs>()) : Activation{};
  return launch_pair(r, r.op.id, act, pair_of(r), r.operands.output("y"), static_cast<uint32_t>(t.dims[0]),
                     static_cast<uint32_t>(t.dims[1]), t.rows);
}

double cost_pair(const swy_op& op, const swy_bucket&) { return cost_of(row_bytes(op), 0); }

constexpr Kernel pair_kernel(const char* name, uint32_t op, uint32_t revision = 1) {
  return {.name = name,
          .op = op,
          .flags = kInvariant | SWY_KERNEL_IN_PLACE,
          .activations = SWY_F32,
          .cost = cost_pair,
          .record = record_pair,
          .op_revision = revision};
}
constexpr Kernel kKernels[] = {pair_kernel("add.plain", SWY_OP_ADD), pair_kernel("silu_mul.plain", SWY_OP_SILU_MUL, 2),
                               pair_kernel("sigmoid_mul.plain", SWY_OP_SIGMOID_MUL),
                               pair_kernel("sigmoid_scale_add.plain", SWY_OP_SIGMOID_SCALE_ADD)};

}  // namespace

swy_status record_activation(const Recording& r, const Activation& act, Span gate, Span up, Span y, uint32_t rows,
                             uint32_t width, swy_rows domain) {
  return launch_pair(r, SWY_OP_SILU_MUL, act, {gate, up, {}}, y, rows, width, domain);
}

std::span<const Kernel> add_kernels() { return kKernels; }

}  // namespace gpu
