// SPDX-License-Identifier: Apache-2.0
// HEAD_SPLIT: x [rows, heads, 2, head_dim] into first and second [rows, heads, head_dim].
#include "common/device_code.cuh"
#include "host/kernels.h"

namespace gpu {
namespace {

__global__ void split_heads(const float* x, float* first, float* second, uint64_t width, uint32_t head_dim,
                            const swy_step* step) {
  depend();
  release_next();
  const uint64_t n = step->rows * width;
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < n; i += uint64_t{gridDim.x} * blockDim.x) {
    const uint64_t from = i + i / head_dim * head_dim;
    first[i] = x[from];
    second[i] = x[from + head_dim];
  }
}

swy_status record_split(const Recording& r) {
  const swy_tensor& y = swy::tensor(r.op, "first");
  const uint32_t blocks = ceil_div(y.dims[0] * y.dims[1], 256);
  return launch(r, split_heads, blocks < 4096 ? blocks : 4096, 256, 0, r.operands.input("x"),
                r.operands.output("first"), r.operands.output("second"), y.dims[1], r.attrs<swy_heads_attrs>().head_dim,
                r.list.step);
}

double cost_split(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return cost_of(device, row_bytes(op), 0);
}

constexpr Kernel kKernels[] = {
    {"head_split.plain", SWY_OP_HEAD_SPLIT, kInvariant, SWY_F32, nullptr, cost_split, nullptr, record_split}};

}  // namespace

std::span<const Kernel> head_split_kernels() { return kKernels; }

}  // namespace gpu
