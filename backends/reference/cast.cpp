// SPDX-License-Identifier: Apache-2.0
// CAST between fp32 and bf16.
#include "arithmetic.h"
#include "kernels.h"

namespace reference {
namespace {

void cast(const swy::Call& call) {
  const swy_tensor& x = swy::tensor(*call.op, "x");
  const swy_dtype from = x.dtype, to = swy::tensor(*call.op, "y").dtype;
  const void* in = call.input<void>("x");
  void* out = call.output<void>("y");
  const auto [first, last] = call.split(call.rows(x) * x.dims[1]);
  for (uint64_t i = first; i < last; ++i) {
    const float value =
        from == SWY_F32 ? static_cast<const float*>(in)[i] : swy_bf16_to_f32(static_cast<const uint16_t*>(in)[i]);
    if (to == SWY_F32) {
      static_cast<float*>(out)[i] = value;
    } else {
      static_cast<uint16_t*>(out)[i] = swy_f32_to_bf16(value);
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
