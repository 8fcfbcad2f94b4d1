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

using RmsNorm = swy::Operands<SWY_OP_RMS_NORM>;
using AddRmsNorm = swy::Operands<SWY_OP_ADD_RMS_NORM>;
using HeadRmsNorm = swy::Operands<SWY_OP_HEAD_RMS_NORM>;
using GatedRmsNorm = swy::Operands<SWY_OP_GATED_RMS_NORM>;

void rms_norm(const swy::Call& call) {
  const auto& a = call.attrs<swy_rms_norm_attrs>();
  const Plain w(call, RmsNorm::weight("w"));
  const swy_tensor& input = *call.op->inputs[RmsNorm::input("x")];
  const uint64_t n = input.dims[1];
  const float* x = call.input(RmsNorm::input("x"));
  float* y = call.output(RmsNorm::output("y"));
  const auto [first, last] = call.split(call.rows(input));
  for (uint64_t r = first; r < last; ++r) rms_norm_row(x + r * n, w, a.weight_bias, a.eps, n, y + r * n);
}

void add_rms_norm(const swy::Call& call) {
  const auto& a = call.attrs<swy_rms_norm_attrs>();
  const Plain w(call, AddRmsNorm::weight("w"));
  const swy_tensor& input = *call.op->inputs[AddRmsNorm::input("x")];
  const uint64_t n = input.dims[1];
  const float *xs = call.input(AddRmsNorm::input("x")), *residuals = call.input(AddRmsNorm::input("residual"));
  float *sums = call.output(AddRmsNorm::output("sum")), *y = call.output(AddRmsNorm::output("y"));
  const auto [first, last] = call.split(call.rows(input));
  for (uint64_t r = first; r < last; ++r) {
    const float *x = xs + r * n, *residual = residuals + r * n;
    float* sum = sums + r * n;
    each_vector(n, [&](uint64_t i, uint64_t count) {
      store(hn::Add(load(x + i, count), load(residual + i, count)), sum + i, count);
    });
    rms_norm_row(sum, w, a.weight_bias, a.eps, n, y + r * n);
  }
}

void head_rms_norm(const swy::Call& call) {
  const auto& a = call.attrs<swy_heads_attrs>();
  const Plain w(call, HeadRmsNorm::weight("w"));
  const uint64_t n = a.head_dim;
  const float* x = call.input(HeadRmsNorm::input("x"));
  float* y = call.output(HeadRmsNorm::output("y"));
  const auto [first, last] = call.split(uint64_t{call.rows(*call.op->inputs[HeadRmsNorm::input("x")])} * a.heads);
  for (uint64_t h = first; h < last; ++h) rms_norm_row(x + h * n, w, a.weight_bias, a.eps, n, y + h * n);
}

void gated_rms_norm(const swy::Call& call) {
  const auto& a = call.attrs<swy_heads_attrs>();
  const Plain w(call, GatedRmsNorm::weight("w"));
  const uint64_t n = a.head_dim;
  const float *x = call.input(GatedRmsNorm::input("x")), *z = call.input(GatedRmsNorm::input("z"));
  float* y = call.output(GatedRmsNorm::output("y"));
  const auto [first, last] = call.split(uint64_t{call.rows(*call.op->inputs[GatedRmsNorm::input("x")])} * a.heads);
  for (uint64_t h = first; h < last; ++h) gated_rms_norm_row(x + h * n, z + h * n, w, a.eps, n, y + h * n);
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cpu {
namespace {

bool few_rows(const swy_op& op, const swy_bucket&) {
  return op.inputs[swy::Operands<SWY_OP_RMS_NORM, SWY_OP_ADD_RMS_NORM>::input("x")]->dims[0] <= 2;
}

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
