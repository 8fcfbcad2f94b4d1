// SPDX-License-Identifier: Apache-2.0
// GATHER_ROWS: the rows whose logits are wanted (gather_rows.comp).
#include "kernels.h"

namespace gpu {
namespace {

#include "gather_rows.comp.h"
constexpr Shader kGather = SWY_SHADER(gather_rows_comp);

swy_status record_gather(const Recording& r) {
  struct {
    uint64_t x, y, step;
    uint32_t width, unused;
  } push{};
  const swy_tensor& t = swy::tensor(r.op, "y");
  const Span x = r.operands.input("x"), y = r.operands.output("y");
  push = {x.address, y.address, r.step(), static_cast<uint32_t>(t.dims[1]), 0};
  const Grid grid{at_most(ceil_div(t.dims[1], kThreads), 64), at_most(static_cast<uint32_t>(t.dims[0]), 4096)};
  return launch(r, kGather, {}, grid, push, {x}, {y});
}

double cost_gather(const swy_op& op, const swy_bucket&) { return cost_of(row_bytes(op), 0); }

constexpr Kernel kKernels[] = {
    {"gather_rows.plain", SWY_OP_GATHER_ROWS, kInvariant, SWY_F32, nullptr, cost_gather, nullptr, record_gather}};

}  // namespace

std::span<const Kernel> gather_rows_kernels() { return kKernels; }

}  // namespace gpu
