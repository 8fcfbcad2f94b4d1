// SPDX-License-Identifier: Apache-2.0
// DELTA_GATES: beta = sigmoid(b) and g = -exp(a_log) * softplus(a + dt_bias), over [rows, value_heads].
#include "gated_delta.cuh"

namespace gpu {
namespace {

// blockIdx.y: rows.
__global__ void __launch_bounds__(256)
    make_gates(const __grid_constant__ Delta d, float* beta, float* g, const swy_step* step) {
  depend();
  release_next();
  const uint32_t head = blockIdx.x * blockDim.x + threadIdx.x;
  if (head >= d.value_heads) return;
  for (uint32_t row = blockIdx.y; row < step->rows; row += gridDim.y) {
    const float2 both = log_gates(d, gate_weights(d, head), row, head);
    beta[uint64_t{row} * d.value_heads + head] = both.x;
    g[uint64_t{row} * d.value_heads + head] = both.y;
  }
}

swy_status record_gates(const Recording& r) {
  const Delta d = delta_of(r);
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "b").dims[0]);
  return launch(r, make_gates, dim3(ceil_div(d.value_heads, 256), rows < 4096 ? rows : 4096), 256, 0, d,
                r.operands.output("beta"), r.operands.output("g"), r.list.step);
}

double cost_gates(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return cost_of(device, row_bytes(op), 0);
}

constexpr Kernel kKernels[] = {
    {"delta_gates.plain", SWY_OP_DELTA_GATES, kInvariant, SWY_F32, nullptr, cost_gates, nullptr, record_gates}};

}  // namespace

std::span<const Kernel> delta_gates_kernels() { return kKernels; }

}  // namespace gpu
