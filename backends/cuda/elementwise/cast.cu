// SPDX-License-Identifier: Apache-2.0
// CAST: between f32 and bf16, to the nearest, ties to even.
#include "common/device_code.cuh"
#include "host/kernels.h"

namespace gpu {
namespace {

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(uint16_t x) { return bf16_bits(x); }
__device__ inline void store(float* to, float x) { *to = x; }
__device__ inline void store(uint16_t* to, float x) { *to = __bfloat16_as_ushort(__float2bfloat16_rn(x)); }

template <class From, class To>
__global__ void cast_rows(const From* x, To* y, uint64_t width, swy_rows domain, const swy_step* step) {
  depend();
  release_next();
  const uint64_t n = step_rows(step, domain) * width;
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < n; i += uint64_t{gridDim.x} * blockDim.x) {
    store(y + i, to_float(x[i]));
  }
}

template <class From, class To>
swy_status record_as(const Recording& r) {
  const swy_tensor& x = swy::tensor(r.op, "x");
  const uint32_t blocks = ceil_div(x.dims[0] * x.dims[1], 256);
  return launch(r, cast_rows<From, To>, blocks < 4096 ? blocks : 4096, 256, 0, r.operands.input<From>("x"),
                r.operands.output<To>("y"), x.dims[1], x.rows, r.list.step);
}

swy_status record_cast(const Recording& r) {
  const bool from_bf16 = swy::tensor(r.op, "x").dtype == SWY_BF16, to_bf16 = swy::tensor(r.op, "y").dtype == SWY_BF16;
  if (from_bf16) return to_bf16 ? record_as<uint16_t, uint16_t>(r) : record_as<uint16_t, float>(r);
  return to_bf16 ? record_as<float, uint16_t>(r) : record_as<float, float>(r);
}

double cost_cast(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return cost_of(device, row_bytes(op), 0);
}

constexpr uint32_t kBoth = SWY_DTYPE_BIT(SWY_F32) | SWY_DTYPE_BIT(SWY_BF16);
constexpr Kernel kKernels[] = {
    {"cast.plain", SWY_OP_CAST, kInvariant, SWY_F32, nullptr, cost_cast, nullptr, record_cast, kBoth, kBoth}};

}  // namespace

std::span<const Kernel> cast_kernels() { return kKernels; }

}  // namespace gpu
