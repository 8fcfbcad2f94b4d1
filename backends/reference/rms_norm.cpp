// SPDX-License-Identifier: Apache-2.0
// RMS_NORM and ADD_RMS_NORM over rows [rows, width]; HEAD_RMS_NORM and GATED_RMS_NORM over heads.
#include "arithmetic.h"
#include "kernels.h"

namespace reference {
namespace {

void rms_norm(const swy::Call& call) {
  const auto& a = call.attrs<swy_rms_norm_attrs>();
  const Weight w(call, "w");
  const float* x = call.input("x");
  float* y = call.output("y");
  const uint64_t n = w.width();
  const auto [first, last] = call.split(call.rows(swy::tensor(*call.op, "x")));
  for (uint64_t r = first; r < last; ++r) {
    rms_norm_row(x + r * n, w, a.weight_bias, a.eps, n, y + r * n);
  }
}

void add_rms_norm(const swy::Call& call) {
  const auto& a = call.attrs<swy_rms_norm_attrs>();
  const Weight w(call, "w");
  const float *x = call.input("x"), *residual = call.input("residual");
  float *sums = call.output("sum"), *y = call.output("y");
  const uint64_t n = w.width();
  const auto [first, last] = call.split(call.rows(swy::tensor(*call.op, "x")));
  for (uint64_t r = first; r < last; ++r) {
    float* sum = sums + r * n;
    for (uint64_t i = 0; i < n; ++i) sum[i] = x[r * n + i] + residual[r * n + i];
    rms_norm_row(sum, w, a.weight_bias, a.eps, n, y + r * n);
  }
}

void head_rms_norm(const swy::Call& call) {
  const auto& a = call.attrs<swy_heads_attrs>();
  const Weight w(call, "w");
  const float* x = call.input("x");
  float* y = call.output("y");
  const uint64_t n = a.head_dim;
  const auto [first, last] = call.split(uint64_t{call.rows(swy::tensor(*call.op, "x"))} * a.heads);
  for (uint64_t h = first; h < last; ++h) {
    rms_norm_row(x + h * n, w, a.weight_bias, a.eps, n, y + h * n);
  }
}

void gated_rms_norm(const swy::Call& call) {
  const auto& a = call.attrs<swy_heads_attrs>();
  const Weight w(call, "w");
  const float *x = call.input("x"), *z = call.input("z");
  float* y = call.output("y");
  const uint64_t n = a.head_dim;
  const auto [first, last] = call.split(uint64_t{call.rows(swy::tensor(*call.op, "x"))} * a.heads);
  for (uint64_t h = first; h < last; ++h) {
    gated_rms_norm_row(x + h * n, z + h * n, w, a.eps, n, y + h * n);
  }
}

constexpr swy::HostKernel kKernels[] = {
    {.name = "rms_norm.plain", .op = SWY_OP_RMS_NORM, .cost = generic_cost, .run = rms_norm},
    {.name = "add_rms_norm.plain", .op = SWY_OP_ADD_RMS_NORM, .cost = generic_cost, .run = add_rms_norm},
    {.name = "head_rms_norm.plain", .op = SWY_OP_HEAD_RMS_NORM, .cost = generic_cost, .run = head_rms_norm},
    {.name = "gated_rms_norm.plain", .op = SWY_OP_GATED_RMS_NORM, .cost = generic_cost, .run = gated_rms_norm},
};

}  // namespace

std::span<const swy::HostKernel> rms_norm_kernels() { return kKernels; }

}  // namespace reference
