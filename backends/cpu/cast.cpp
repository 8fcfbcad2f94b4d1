// SPDX-License-Identifier: Apache-2.0
// CAST between fp32 and bf16.
#include "kernels.h"

namespace cpu {
namespace {

using Cast = swy::Operands<SWY_OP_CAST>;

void cast(const swy::Call& call) {
  constexpr uint32_t kX = Cast::input("x"), kY = Cast::output("y");
  const swy_tensor &input = *call.op->inputs[kX], &output = *call.op->outputs[kY];
  const auto [first, last] = call.split(call.rows(input) * input.dims[1]);
  for (uint64_t i = first; i < last; ++i) {
    const float x = input.dtype == SWY_F32 ? call.input(kX)[i] : swy_bf16_to_f32(call.input<uint16_t>(kX)[i]);
    if (output.dtype == SWY_F32) {
      call.output(kY)[i] = x;
    } else {
      call.output<uint16_t>(kY)[i] = swy_f32_to_bf16(x);
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

}  // namespace cpu
