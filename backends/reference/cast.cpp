// SPDX-License-Identifier: Apache-2.0
// CAST between fp32 and bf16.
#include "arithmetic.h"
#include "kernels.h"

namespace reference {
namespace {

void cast(const swy::Call& call) {
  const auto [first, last] = call.split(call.rows(*call.op->inputs[0]) * call.op->inputs[0]->dims[1]);
  const swy_dtype from = call.op->inputs[0]->dtype, to = call.op->outputs[0]->dtype;
  for (uint64_t i = first; i < last; ++i) {
    const float x = from == SWY_F32 ? call.input(0)[i] : swy_bf16_to_f32(call.input<uint16_t>(0)[i]);
    if (to == SWY_F32) {
      call.output(0)[i] = x;
    } else {
      call.output<uint16_t>(0)[i] = swy_f32_to_bf16(x);
    }
  }
}

constexpr uint32_t kTypes = SWY_DTYPE_BIT(SWY_F32) | SWY_DTYPE_BIT(SWY_BF16);
constexpr swy::HostKernel kKernels[] = {
    {.name = "cast.plain",
     .op = SWY_OP_CAST,
     .input_dtypes = kTypes,
     .output_dtypes = kTypes,
     .cost = generic_cost,
     .run = cast},
};

}  // namespace

std::span<const swy::HostKernel> cast_kernels() { return kKernels; }

}  // namespace reference
