// SPDX-License-Identifier: Apache-2.0
// RMS_NORM and ADD_RMS_NORM (rms_norm.comp), HEAD_RMS_NORM and GATED_RMS_NORM (head_norm.comp).
#include "kernels.h"

namespace gpu {
namespace {

#include "head_norm.comp.h"
#include "rms_norm.comp.h"
constexpr Shader kNorm = SWY_SHADER(rms_norm_comp), kHeadNorm = SWY_SHADER(head_norm_comp);

swy_status record_norm(const Recording& r) {
  struct {
    uint64_t x, x2, w, sum, y, step;
    uint32_t width, domain;
    float eps, bias;
  } push{};
  const auto& a = r.attrs<swy_rms_norm_attrs>();
  const bool add = r.op.id == SWY_OP_ADD_RMS_NORM;
  const swy_tensor& t = swy::tensor(r.op, "x");
  const Weight w = r.operands.weight("w");
  const Span x = r.operands.input("x"), x2 = r.operands.input("residual");
  const Span sum = r.operands.output("sum"), y = r.operands.output("y");
  push = {x.address, x2.address, w.data, sum.address, y.address, r.step(), w.width, t.rows, a.eps, a.weight_bias};
  SWY_VK_TRY(launch(r, kNorm, {w.form, add}, {static_cast<uint32_t>(t.dims[0])}, push, {x, x2}, {sum, y}));
  if (!add) r.list.norm = {x, y, w.data, w.form, a.eps, a.weight_bias, r.list.dispatches.size()};
  return SWY_OK;
}

swy_status record_head_norm(const Recording& r) {
  struct {
    uint64_t x, z, w, y, step;
    uint32_t heads, head_dim, domain;
    float eps, bias;
    uint32_t unused;
  } push{};
  const auto& a = r.attrs<swy_heads_attrs>();
  const bool gated = r.op.id == SWY_OP_GATED_RMS_NORM;
  const swy_tensor& t = swy::tensor(r.op, "x");
  const Weight w = r.operands.weight("w");
  const Span x = r.operands.input("x"), z = r.operands.input("z"), y = r.operands.output("y");
  push = {x.address, z.address,  w.data, y.address, r.step(),
          a.heads,   a.head_dim, t.rows, a.eps,     gated ? 0 : a.weight_bias,
          0};
  const Grid grid{ceil_div(a.heads, kThreads / r.device().features.subgroup),
                  at_most(static_cast<uint32_t>(t.dims[0]), 16384)};
  return launch(r, kHeadNorm, {w.form, gated}, grid, push, {x, z}, {y});
}

double cost_norm(const swy_op& op, const swy_bucket&) { return cost_of(row_bytes(op), 0); }

constexpr Kernel kKernels[] = {
    {"rms_norm.plain", SWY_OP_RMS_NORM, kInvariant, SWY_F32, nullptr, cost_norm, nullptr, record_norm},
    {"add_rms_norm.plain", SWY_OP_ADD_RMS_NORM, kInvariant, SWY_F32, nullptr, cost_norm, nullptr, record_norm},
    {"head_rms_norm.plain", SWY_OP_HEAD_RMS_NORM, kInvariant, SWY_F32, nullptr, cost_norm, nullptr, record_head_norm},
    {"gated_rms_norm.plain", SWY_OP_GATED_RMS_NORM, kInvariant, SWY_F32, nullptr, cost_norm, nullptr, record_head_norm},
};

}  // namespace

std::span<const Kernel> rms_norm_kernels() { return kKernels; }

}  // namespace gpu
