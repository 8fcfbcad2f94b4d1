// SPDX-License-Identifier: Apache-2.0
// LINEAR, LINEAR_ADD, RMS_NORM_LINEAR: y [rows, out] = x [rows, in] * w^T.
//
// Each weight row is dequantized once per call and used for all rows of the step.
#include "arithmetic.h"
#include "kernels.h"

namespace reference {
namespace {

uint64_t linear_workspace(const swy_op& op, const swy_bucket&) { return scratch_bytes(op.inputs[0]->dims[1]); }

void linear_from(const swy::Call& call, uint32_t first_weight, const float* x) {
  const uint32_t rows = call.rows(*call.op->inputs[0]);
  for (uint32_t i = first_weight; i < call.op->weight_count; ++i) {
    const Weight w(call, i);
    linear_rows(call, w, x, rows, call.output(i - first_weight), w.rows(), scratch(call, w.width()));
  }
}

void linear(const swy::Call& call) { linear_from(call, 0, call.input(0)); }

void linear_add(const swy::Call& call) {
  linear(call);
  call.barrier();
  const uint64_t out = call.op->weights[0]->dims[0];
  const auto [first, last] = call.split(call.rows(*call.op->inputs[0]) * out);
  for (uint64_t i = first; i < last; ++i) call.output(0)[i] += call.input(1)[i];
}

// Workspace: scratch, then the normed rows [rows, in].
uint64_t rms_norm_linear_workspace(const swy_op& op, const swy_bucket&) {
  return scratch_bytes(op.inputs[0]->dims[1]) + op.inputs[0]->dims[0] * op.inputs[0]->dims[1] * 4;
}

void rms_norm_linear(const swy::Call& call) {
  const auto& a = call.attrs<swy_rms_norm_attrs>();
  const Weight norm(call, 0);
  const uint64_t n = norm.width();
  float* normed = call.work<float>(scratch_bytes(n));
  const auto [first, last] = call.split(call.rows(*call.op->inputs[0]));
  for (uint64_t r = first; r < last; ++r) {
    rms_norm_row(call.input(0) + r * n, norm, a.weight_bias, a.eps, n, normed + r * n);
  }
  call.barrier();
  linear_from(call, 1, normed);
}

constexpr swy::HostKernel kKernels[] = {
    {.name = "linear.plain", .op = SWY_OP_LINEAR, .cost = generic_cost, .run = linear, .workspace = linear_workspace},
    {.name = "linear_add.plain",
     .op = SWY_OP_LINEAR_ADD,
     .cost = generic_cost,
     .run = linear_add,
     .workspace = linear_workspace},
    {.name = "rms_norm_linear.plain",
     .op = SWY_OP_RMS_NORM_LINEAR,
     .cost = generic_cost,
     .run = rms_norm_linear,
     .workspace = rms_norm_linear_workspace},
};

}  // namespace

std::span<const swy::HostKernel> linear_kernels() { return kKernels; }

}  // namespace reference
