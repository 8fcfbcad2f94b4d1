// SPDX-License-Identifier: Apache-2.0
// RMS_NORM and ADD_RMS_NORM over rows [rows, width]; HEAD_RMS_NORM and GATED_RMS_NORM over heads.
#include "arithmetic.h"
#include "kernels.h"

namespace reference {
namespace {

void rms_norm(const swy::Call& call) {
  const auto& a = call.attrs<swy_rms_norm_attrs>();
  const Weight w(call, 0);
  const uint64_t n = w.width();
  const auto [first, last] = call.split(call.rows(*call.op->inputs[0]));
  for (uint64_t r = first; r < last; ++r) {
    rms_norm_row(call.input(0) + r * n, w, a.weight_bias, a.eps, n, call.output(0) + r * n);
  }
}

void add_rms_norm(const swy::Call& call) {
  const auto& a = call.attrs<swy_rms_norm_attrs>();
  const Weight w(call, 0);
  const uint64_t n = w.width();
  const auto [first, last] = call.split(call.rows(*call.op->inputs[0]));
  for (uint64_t r = first; r < last; ++r) {
    float* sum = call.output(0) + r * n;
    for (uint64_t i = 0; i < n; ++i) sum[i] = call.input(0)[r * n + i] + call.input(1)[r * n + i];
    rms_norm_row(sum, w, a.weight_bias, a.eps, n, call.output(1) + r * n);
  }
}

void head_rms_norm(const swy::Call& call) {
  const auto& a = call.attrs<swy_heads_attrs>();
  const Weight w(call, 0);
  const uint64_t n = a.head_dim;
  const auto [first, last] = call.split(uint64_t{call.rows(*call.op->inputs[0])} * a.heads);
  for (uint64_t h = first; h < last; ++h) {
    rms_norm_row(call.input(0) + h * n, w, a.weight_bias, a.eps, n, call.output(0) + h * n);
  }
}

void gated_rms_norm(const swy::Call& call) {
  const auto& a = call.attrs<swy_heads_attrs>();
  const Weight w(call, 0);
  const uint64_t n = a.head_dim;
  const auto [first, last] = call.split(uint64_t{call.rows(*call.op->inputs[0])} * a.heads);
  for (uint64_t h = first; h < last; ++h) {
    gated_rms_norm_row(call.input(0) + h * n, call.input(1) + h * n, w, a.eps, n, call.output(0) + h * n);
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
