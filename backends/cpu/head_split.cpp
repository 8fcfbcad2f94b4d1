// SPDX-License-Identifier: Apache-2.0
// HEAD_SPLIT: x [rows, heads, 2, head_dim] into two of [rows, heads, head_dim].
#include "kernels.h"

namespace cpu {
namespace {

using HeadSplit = swy::Operands<SWY_OP_HEAD_SPLIT>;

void head_split(const swy::Call& call) {
  const auto& a = call.attrs<swy_heads_attrs>();
  const auto [first, last] = call.split(uint64_t{call.step->rows} * a.heads);
  const uint64_t hd = a.head_dim;
  const float* x = call.input(HeadSplit::input("x"));
  float *one = call.output(HeadSplit::output("first")), *two = call.output(HeadSplit::output("second"));
  for (uint64_t h = first; h < last; ++h) {
    std::memcpy(one + h * hd, x + 2 * h * hd, hd * sizeof(float));
    std::memcpy(two + h * hd, x + (2 * h + 1) * hd, hd * sizeof(float));
  }
}

constexpr swy::HostKernel kKernels[] = {
    {.name = "head_split.plain",
     .op = SWY_OP_HEAD_SPLIT,
     .cost = generic_cost,
     .run = head_split,
     .serial = small_work},
};

}  // namespace

std::span<const swy::HostKernel> head_split_kernels() { return kKernels; }

}  // namespace cpu
