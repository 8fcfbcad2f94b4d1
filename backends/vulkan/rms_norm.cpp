// SPDX-License-Identifier: Apache-2.0
// RMS_NORM and ADD_RMS_NORM (rms_norm.comp).
#include "kernels.h"

namespace gpu {
namespace {

#include "rms_norm.comp.h"
constexpr Shader kNorm = SWY_SHADER(rms_norm_comp);

swy_status record_norm(const Recording& r) {
  struct {
    uint64_t x, x2, w, sum, y, step;
    uint32_t width, domain;
    float eps, bias;
  } push{};
  const auto& a = r.attrs<swy_rms_norm_attrs>();
  const bool add = r.op.id == SWY_OP_ADD_RMS_NORM;
  const swy_tensor& t = *r.op.inputs[0];
  const Weight w = r.operands.weight(0);
  const Span x = r.operands.input(0), x2 = add ? r.operands.input(1) : Span{};
  const Span sum = add ? r.operands.output(0) : Span{}, y = r.operands.output(add ? 1 : 0);
  push = {x.address, x2.address, w.data, sum.address, y.address, r.step(), w.width, t.rows, a.eps, a.weight_bias};
  SWY_VK_TRY(launch(r, kNorm, {w.form, add}, {static_cast<uint32_t>(t.dims[0])}, push, {x, x2}, {sum, y}));
  if (!add) r.list.norm = {x, y, w.data, w.form, a.eps, a.weight_bias, r.list.dispatches.size()};
  return SWY_OK;
}

double cost_norm(const swy_op& op, const swy_bucket&) { return cost_of(row_bytes(op), 0); }

constexpr Kernel kKernels[] = {
    {"rms_norm.plain", SWY_OP_RMS_NORM, kInvariant, SWY_F32, nullptr, cost_norm, nullptr, record_norm},
    {"add_rms_norm.plain", SWY_OP_ADD_RMS_NORM, kInvariant, SWY_F32, nullptr, cost_norm, nullptr, record_norm},
};

}  // namespace

std::span<const Kernel> rms_norm_kernels() { return kKernels; }

}  // namespace gpu
