// SPDX-License-Identifier: Apache-2.0
// HEAD_SPLIT: the two halves of each head (head_split.comp).
#include "kernels.h"

namespace gpu {
namespace {

#include "head_split.comp.h"
constexpr Shader kSplit = SWY_SHADER(head_split_comp);

swy_status record_split(const Recording& r) {
  struct {
    uint64_t x, first, second, step;
    uint32_t width, head_dim;
  } push{};
  const swy_tensor& t = swy::tensor(r.op, "first");
  const Span x = r.operands.input("x"), first = r.operands.output("first"), second = r.operands.output("second");
  push = {x.address,
          first.address,
          second.address,
          r.step(),
          static_cast<uint32_t>(t.dims[1]),
          r.attrs<swy_heads_attrs>().head_dim};
  const Grid grid{at_most(ceil_div(t.dims[1], kThreads), 64), at_most(static_cast<uint32_t>(t.dims[0]), 4096)};
  return launch(r, kSplit, {}, grid, push, {x}, {first, second});
}

double cost_split(const swy_op& op, const swy_bucket&) { return cost_of(row_bytes(op), 0); }

constexpr Kernel kKernels[] = {
    {"head_split.plain", SWY_OP_HEAD_SPLIT, kInvariant, SWY_F32, nullptr, cost_split, nullptr, record_split}};

}  // namespace

std::span<const Kernel> head_split_kernels() { return kKernels; }

}  // namespace gpu
