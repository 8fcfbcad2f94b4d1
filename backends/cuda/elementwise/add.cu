// SPDX-License-Identifier: Apache-2.0
// ADD, SILU_MUL, SIGMOID_MUL, SIGMOID_SCALE_ADD: element by element over [rows, width].
#include "add.h"
#include "common/device_code.cuh"

namespace gpu {
namespace {

// What the operation reads; g [rows] is the gate of SIGMOID_SCALE_ADD.
struct Pair {
  const float *a, *b, *g;
  float* y;
  uint64_t width;
  swy_rows domain;
  Activation act;  // of SILU_MUL
};

template <swy_op_id kOp>
__global__ void combine_rows(const __grid_constant__ Pair p, const swy_step* step) {
  depend();
  release_next();
  const uint64_t n = step_rows(step, p.domain) * p.width;
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < n; i += uint64_t{gridDim.x} * blockDim.x) {
    const float a = p.a[i], b = p.b[i];
    if constexpr (kOp == SWY_OP_ADD) p.y[i] = a + b;
    if constexpr (kOp == SWY_OP_SILU_MUL) p.y[i] = activated(p.act, a, b);
    if constexpr (kOp == SWY_OP_SIGMOID_MUL) p.y[i] = a * sigmoid(b);
    if constexpr (kOp == SWY_OP_SIGMOID_SCALE_ADD) p.y[i] = fmaf(sigmoid(p.g[i / p.width]), b, a);
  }
}

template <swy_op_id kOp>
swy_status record_rows(const Recording& r, const Pair& p, uint64_t rows) {
  const uint32_t blocks = ceil_div(rows * p.width, 256);
  return launch(r, combine_rows<kOp>, blocks < 4096 ? blocks : 4096, 256, 0, p, r.list.step);
}

Pair pair_of(const Recording& r) {
  const Operands& o = r.operands;
  const swy_tensor& y = swy::tensor(r.op, "y");
  Pair p{nullptr, nullptr, nullptr, o.output("y"), y.dims[1], y.rows, {}};
  if (r.op.id == SWY_OP_ADD) p.a = o.input("x"), p.b = o.input("residual");
  if (r.op.id == SWY_OP_SILU_MUL) p.a = o.input("gate"), p.b = o.input("up");
  if (r.op.id == SWY_OP_SIGMOID_MUL) p.a = o.input("x"), p.b = o.input("gate");
  if (r.op.id == SWY_OP_SIGMOID_SCALE_ADD) p.a = o.input("routed"), p.b = o.input("shared"), p.g = o.input("gate");
  if (r.op.id == SWY_OP_SILU_MUL && r.op.revision > 1) p.act = activation_of(r.attrs<swy_activation_attrs>());
  return p;
}

template <swy_op_id kOp>
swy_status record_pair(const Recording& r) {
  return record_rows<kOp>(r, pair_of(r), swy::tensor(r.op, "y").dims[0]);
}

double cost_pair(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return cost_of(device, row_bytes(op), 0);
}

template <swy_op_id kOp>
constexpr Kernel pair_kernel(const char* name, uint32_t revision = 1) {
  return {.name = name,
          .op = kOp,
          .flags = kInvariant | SWY_KERNEL_IN_PLACE,
          .activations = SWY_F32,
          .cost = cost_pair,
          .record = record_pair<kOp>,
          .op_revision = revision};
}
constexpr Kernel kKernels[] = {pair_kernel<SWY_OP_ADD>("add.plain"), pair_kernel<SWY_OP_SILU_MUL>("silu_mul.plain", 2),
                               pair_kernel<SWY_OP_SIGMOID_MUL>("sigmoid_mul.plain"),
                               pair_kernel<SWY_OP_SIGMOID_SCALE_ADD>("sigmoid_scale_add.plain")};

}  // namespace

swy_status record_activation(const Recording& r, const Activation& act, const float* gate, const float* up, float* y,
                             uint32_t rows, uint32_t width, swy_rows domain) {
  return record_rows<SWY_OP_SILU_MUL>(r, {gate, up, nullptr, y, width, domain, act}, rows);
}

std::span<const Kernel> add_kernels() { return kKernels; }

}  // namespace gpu
