// SPDX-License-Identifier: Apache-2.0
// ADD: y [rows, width] = a + b.
#include "common/device_code.cuh"
#include "host/kernels.h"

namespace gpu {
namespace {

__global__ void add_rows(const float* a, const float* b, float* y, uint64_t width, swy_rows domain,
                         const swy_step* step) {
  depend();
  release_next();
  const uint64_t n = step_rows(step, domain) * width;
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < n; i += uint64_t{gridDim.x} * blockDim.x) {
    y[i] = a[i] + b[i];
  }
}

swy_status record_add(const Recording& r) {
  const swy_tensor& x = swy::tensor(r.op, "x");
  const uint32_t blocks = ceil_div(x.dims[0] * x.dims[1], 256);
  return launch(r, add_rows, blocks < 4096 ? blocks : 4096, 256, 0, r.operands.input("x"), r.operands.input("residual"),
                r.operands.output("y"), x.dims[1], x.rows, r.list.step);
}

double cost_add(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return cost_of(device, row_bytes(op), 0);
}

constexpr Kernel kKernels[] = {
    {"add.plain", SWY_OP_ADD, kInvariant | SWY_KERNEL_IN_PLACE, SWY_F32, nullptr, cost_add, nullptr, record_add}};

}  // namespace

std::span<const Kernel> add_kernels() { return kKernels; }

}  // namespace gpu
