// SPDX-License-Identifier: Apache-2.0
// RMS_NORM and ADD_RMS_NORM over rows [rows, width]; HEAD_RMS_NORM and GATED_RMS_NORM over heads.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rms_norm.cpp"
#include "simd.h"
// after simd.h
#include <hwy/foreach_target.h>

#include "norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cpu {
namespace HWY_NAMESPACE {

void rms_norm(const swy::Call& call) {
  const auto& a = call.attrs<swy_rms_norm_attrs>();
  const Plain w(call, 0);
  const uint64_t n = call.op->inputs[0]->dims[1];
  const auto [first, last] = call.split(call.rows(*call.op->inputs[0]));
  for (uint64_t r = first; r < last; ++r) {
    rms_norm_row(call.input(0) + r * n, w, a.weight_bias, a.eps, n, call.output(0) + r * n);
  }
}

void add_rms_norm(const swy::Call& call) {
  const auto& a = call.attrs<swy_rms_norm_attrs>();
  const Plain w(call, 0);
  const uint64_t n = call.op->inputs[0]->dims[1];
  const auto [first, last] = call.split(call.rows(*call.op->inputs[0]));
  for (uint64_t r = first; r < last; ++r) {
    const float *x = call.input(0) + r * n, *y = call.input(1) + r * n;
    float* sum = call.output(0) + r * n;
    each_vector(
        n, [&](uint64_t i, uint64_t count) { store(hn::Add(load(x + i, count), load(y + i, count)), sum + i, count); });
    rms_norm_row(sum, w, a.weight_bias, a.eps, n, call.output(1) + r * n);
  }
}

void head_rms_norm(const swy::Call& call) {
  const auto& a = call.attrs<swy_heads_attrs>();
  const Plain w(call, 0);
  const uint64_t n = a.head_dim;
  const auto [first, last] = call.split(uint64_t{call.rows(*call.op->inputs[0])} * a.heads);
  for (uint64_t h = first; h < last; ++h) {
    rms_norm_row(call.input(0) + h * n, w, a.weight_bias, a.eps, n, call.output(0) + h * n);
  }
}

void gated_rms_norm(const swy::Call& call) {
  const auto& a = call.attrs<swy_heads_attrs>();
  const Plain w(call, 0);
  const uint64_t n = a.head_dim;
  const auto [first, last] = call.split(uint64_t{call.rows(*call.op->inputs[0])} * a.heads);
  for (uint64_t h = first; h < last; ++h) {
    gated_rms_norm_row(call.input(0) + h * n, call.input(1) + h * n, w, a.eps, n, call.output(0) + h * n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cpu {
namespace {

bool few_rows(const swy_op& op, const swy_bucket&) { return op.inputs[0]->dims[0] <= 2; }

constexpr swy::HostKernel kKernels[] = {
    {.name = "rms_norm.vector",
     .op = SWY_OP_RMS_NORM,
     .cost = generic_cost,
     .run =
         [](const swy::Call& call) {
           CPU_BEST(rms_norm)
           (call);
         },
     .serial = few_rows},
    {.name = "add_rms_norm.vector",
     .op = SWY_OP_ADD_RMS_NORM,
     .cost = generic_cost,
     .run =
         [](const swy::Call& call) {
           CPU_BEST(add_rms_norm)
           (call);
         },
     .serial = few_rows},
    {.name = "head_rms_norm.vector",
     .op = SWY_OP_HEAD_RMS_NORM,
     .cost = generic_cost,
     .run =
         [](const swy::Call& call) {
           CPU_BEST(head_rms_norm)
           (call);
         }},
    {.name = "gated_rms_norm.vector",
     .op = SWY_OP_GATED_RMS_NORM,
     .cost = generic_cost,
     .run =
         [](const swy::Call& call) {
           CPU_BEST(gated_rms_norm)
           (call);
         }},
};

}  // namespace

std::span<const swy::HostKernel> rms_norm_kernels() { return kKernels; }

}  // namespace cpu
#endif
