// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA where every sequence has one row: one launch (gated_delta_step.comp).
#include "gated_delta.h"

namespace gpu {
namespace {

#include "gated_delta_step.comp.h"
constexpr Shader kStep = SWY_SHADER(gated_delta_step_comp);
constexpr uint32_t kStepThreads = 512;  // for devices known to allow so many: two columns of the state each

swy_status record(const Recording& r) {
  const auto& a = r.attrs<swy_gated_delta_attrs>();
  const Delta d = delta_of(r);
  const uint32_t seqs = r.bucket().seqs;
  Span counters;
  SWY_VK_TRY(take_counters(r.list, a.key_heads * seqs, counters, r.error));
  struct {
    uint64_t qkv, z, b, a, conv, a_log, dt_bias, norm, conv_state, rule_state, y, counters, step, pending;
    uint32_t key_heads, value_heads;
    float norm_eps, l2_eps;
  } push{};
  push = {d.qkv.address,  d.z.address,       d.b.address,          d.a.address,          d.conv.data, d.a_log.data,
          d.dt_bias.data, d.norm.data,       d.conv_state.address, d.rule_state.address, d.y.address, counters.address,
          r.step(),       d.pending.address, a.key_heads,          a.value_heads,        a.norm_eps,  a.l2_eps};
  const auto& f = r.device().features;
  const uint32_t threads = f.processors != 0 && f.subgroup >= 32 ? kStepThreads : kThreads;
  return launch(r, kStep, {a.key_dim, a.value_dim, a.conv_kernel, d.types, threads, d.pending_rows},
                {a.value_heads, seqs}, push, {d.qkv, d.z, d.b, d.a},
                {d.y, d.conv_state, d.rule_state, d.pending, counters});
}

swy_status supports(const swy_device&, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  if ((bucket.flags & SWY_BUCKET_DECODE) == 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_FLAGS, "serves steps with one row per sequence");
  }
  if (a.key_dim % 4 != 0 || a.key_dim > 128 || a.value_dim > 128 || a.conv_kernel > 8) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "key_dim %u, value_dim %u, kernel %u; at most 128, 128 and 8", a.key_dim, a.value_dim,
                     a.conv_kernel);
  }
  return SWY_OK;
}

double cost(const swy_op& op, const swy_bucket& bucket) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  return cost_of(row_bytes(op) + 8.0 * a.value_heads * a.key_dim * a.value_dim * bucket.seqs, 0);
}

// Adds in another order than the kernels for prompts.
constexpr Kernel kKernels[] = {{.name = "gated_delta.step",
                                .op = SWY_OP_GATED_DELTA,
                                .flags = kAlways,
                                .activations = SWY_F32,
                                .supports = supports,
                                .cost = cost,
                                .workspace = nullptr,
                                .record = record,
                                .op_revision = 2}};

}  // namespace

std::span<const Kernel> gated_delta_step_kernels() { return kKernels; }

}  // namespace gpu
