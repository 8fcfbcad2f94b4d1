// SPDX-License-Identifier: Apache-2.0
// LINEAR, LINEAR_ADD, RMS_NORM_LINEAR: y [rows, out] = x [rows, in] * w^T, with a bias in their second revisions.
//
// Each weight row is dequantized once per call and used for all rows of the step.
#include "arithmetic.h"
#include "kernels.h"

namespace reference {
namespace {

uint64_t linear_workspace(const swy_op& op, const swy_bucket&) {
  return scratch_bytes(kBlock * swy::tensor(op, "x").dims[1]);
}

void linear_of(const swy::Call& call, const float* x) {
  const uint32_t rows = call.rows(swy::tensor(*call.op, "x")), first_weight = swy::at(*call.op, "w");
  const uint32_t first_bias = swy::at(*call.op, "bias");
  for (uint32_t i = 0; i < call.op->output_count; ++i) {
    const Weight w(call, first_weight + i);
    const auto bias =
        first_bias == UINT32_MAX ? std::nullopt : std::optional<Weight>(std::in_place, call, first_bias + i);
    linear_rows(call, w, x, rows, call.output(i), w.rows(), scratch(call, kBlock * w.width()), bias ? &*bias : nullptr);
  }
}

void linear(const swy::Call& call) { linear_of(call, call.input("x")); }

void linear_add(const swy::Call& call) {
  linear(call);
  call.barrier();
  const swy_tensor& out = swy::tensor(*call.op, "y");
  const float* residual = call.input("residual");
  float* y = call.output("y");
  const auto [first, last] = call.split(call.rows(out) * out.dims[1]);
  for (uint64_t i = first; i < last; ++i) y[i] += residual[i];
}

// Workspace: scratch, then the normed rows [rows, in].
uint64_t rms_norm_linear_workspace(const swy_op& op, const swy_bucket&) {
  const swy_tensor& x = swy::tensor(op, "x");
  return scratch_bytes(kBlock * x.dims[1]) + x.dims[0] * x.dims[1] * 4;
}

void rms_norm_linear(const swy::Call& call) {
  const auto& a = call.attrs<swy_rms_norm_attrs>();
  const Weight norm(call, "norm");
  const float* x = call.input("x");
  const uint64_t n = norm.width();
  float* normed = call.work<float>(scratch_bytes(kBlock * n));
  const auto [first, last] = call.split(call.rows(swy::tensor(*call.op, "x")));
  for (uint64_t r = first; r < last; ++r) {
    rms_norm_row(x + r * n, norm, a.weight_bias, a.eps, n, normed + r * n);
  }
  call.barrier();
  linear_of(call, normed);
}

constexpr swy::HostKernel kKernels[] = {
    {.name = "linear.plain",
     .op = SWY_OP_LINEAR,
     .weight_dtypes = kMatrices,
     .cost = generic_cost,
     .run = linear,
     .workspace = linear_workspace,
     .op_revision = 2},
    {.name = "linear_add.plain",
     .op = SWY_OP_LINEAR_ADD,
     .weight_dtypes = kMatrices,
     .cost = generic_cost,
     .run = linear_add,
     .workspace = linear_workspace,
     .op_revision = 2},
    {.name = "rms_norm_linear.plain",
     .op = SWY_OP_RMS_NORM_LINEAR,
     .weight_dtypes = kMatrices,
     .cost = generic_cost,
     .run = rms_norm_linear,
     .workspace = rms_norm_linear_workspace,
     .op_revision = 2},
};

}  // namespace

std::span<const swy::HostKernel> linear_kernels() { return kKernels; }

}  // namespace reference
