// SPDX-License-Identifier: Apache-2.0
// ADD: y [rows, width] = a + b (add.comp).
#include "kernels.h"

namespace gpu {
namespace {

#include "add.comp.h"
constexpr Shader kAdd = SWY_SHADER(add_comp);

swy_status record_add(const Recording& r) {
  struct {
    uint64_t a, b, y, step;
    uint32_t width, domain;
  } push{};
  const swy_tensor& x = *r.op.inputs[0];
  const Span a = r.operands.input(0), b = r.operands.input(1), y = r.operands.output(0);
  push = {a.address, b.address, y.address, r.step(), static_cast<uint32_t>(x.dims[1]), x.rows};
  const Grid grid{at_most(ceil_div(x.dims[1], kThreads), 64), at_most(static_cast<uint32_t>(x.dims[0]), 4096)};
  return launch(r, kAdd, {}, grid, push, {a, b}, {y});
}

double cost_add(const swy_op& op, const swy_bucket&) { return cost_of(row_bytes(op), 0); }

constexpr Kernel kKernels[] = {
    {"add.plain", SWY_OP_ADD, kInvariant | SWY_KERNEL_IN_PLACE, SWY_F32, nullptr, cost_add, nullptr, record_add}};

}  // namespace

std::span<const Kernel> add_kernels() { return kKernels; }

}  // namespace gpu
