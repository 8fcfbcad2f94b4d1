// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA, any number of rows, token by token: convolution, norms of q and k and gates (gated_delta_prepare.comp),
// the rule (gated_delta.comp), gated norm (gated_delta_gate.comp).
#include "gated_delta.h"

namespace gpu {
namespace {

#include "delta_rule_prepare.comp.h"
#include "gated_delta.comp.h"
#include "gated_delta_gate.comp.h"
#include "gated_delta_prepare.comp.h"
constexpr Shader kPrepare = SWY_SHADER(gated_delta_prepare_comp), kRule = SWY_SHADER(gated_delta_comp);
constexpr Shader kGate = SWY_SHADER(gated_delta_gate_comp), kRuleInputs = SWY_SHADER(delta_rule_prepare_comp);

uint32_t rows_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "qkv").dims[0]); }

// The rule over `m`. With a `taps` of 1 the state of the convolution is left alone, and neither it nor `qkv` is read.
swy_status record_rule(const Recording& r, const Delta& d, const Mixed& m, uint32_t taps, bool stands = false) {
  const auto& a = r.attrs<swy_gated_delta_attrs>();
  struct {
    uint64_t qkv, mixed, gate, conv_state, rule_state, o, step, pending;
    uint32_t key_heads, value_heads, pending_rows, first_pending;
  } rule{};
  rule = {d.qkv.address, m.rows.address,    m.gate.address, d.conv_state.address, d.rule_state.address, d.y.address,
          r.step(),      d.pending.address, a.key_heads,    a.value_heads,        d.pending_rows,       rows_of(r.op)};
  return launch(r, kRule, {a.key_dim, a.value_dim, taps, d.types, stands},
                {ceil_div(a.value_dim, 32), a.value_heads, r.bucket().seqs}, rule, {d.qkv, m.rows, m.gate, d.pending},
                {d.y, d.conv_state, d.rule_state});
}

swy_status record_recurrent(const Recording& r) {
  const Delta d = delta_of(r);
  Arena arena(r.operands.workspace());
  const Mixed m = take_mixed(arena, r.op, r.bucket());
  SWY_VK_TRY(record_delta_mix(r, d, m, false));
  SWY_VK_TRY(record_rule(r, d, m, r.attrs<swy_gated_delta_attrs>().conv_kernel));
  return record_delta_gate(r, d);
}

swy_status record_delta_rule(const Recording& r) {
  const auto& a = r.attrs<swy_gated_delta_attrs>();
  const uint32_t rows = rows_of(r.op);
  Arena arena(r.operands.workspace());
  const Mixed m = take_mixed(arena, r.op, r.bucket());
  Delta d;
  d.qkv = r.operands.input("qkv");
  d.rule_state = r.operands.state("delta_state");
  d.y = r.operands.output("y");
  const Span beta = r.operands.input("beta"), g = r.operands.input("g");
  struct {
    uint64_t qkv, beta, g, mixed, gate, step;
    uint32_t key_heads, value_heads;
    float l2_eps;
    uint32_t unused;
  } push{};
  push = {d.qkv.address, beta.address, g.address,     m.rows.address, m.gate.address,
          r.step(),      a.key_heads,  a.value_heads, a.l2_eps,       0};
  const uint32_t subgroups = kThreads / r.device().features.subgroup;
  SWY_VK_TRY(launch(r, kRuleInputs, {a.key_dim, a.value_dim, 1u, 0u},
                    {ceil_div(2 * a.key_heads + a.value_heads, subgroups), at_most(rows, 16384)}, push,
                    {d.qkv, beta, g}, {m.rows, m.gate}));
  return record_rule(r, d, m, 1);
}

swy_status supports_recurrent(const swy_device&, const swy_op& op, const swy_bucket&, swy_error* error) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  if (a.key_dim % 4 == 0 && a.key_dim <= 256 && swy::tensor(op, "qkv").dims[1] % 4 == 0) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                   "key_dim is %u, of %llu channels; multiples of 4 are needed, and at most 256", a.key_dim,
                   static_cast<unsigned long long>(swy::tensor(op, "qkv").dims[1]));
}

double cost_recurrent(const swy_op& op, const swy_bucket& bucket) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  const double state = static_cast<double>(a.value_heads) * a.key_dim * a.value_dim;
  return cost_of(row_bytes(op) + 8 * state * bucket.seqs, 4 * state * bucket.rows, 4);
}

uint64_t workspace_recurrent(const swy_device&, const swy_op& op, const swy_bucket& bucket) {
  Arena arena;
  take_mixed(arena, op, bucket);
  return arena.used();
}

constexpr Kernel kKernels[] = {{.name = "gated_delta.recurrent",
                                .op = SWY_OP_GATED_DELTA,
                                .flags = kInvariant,
                                .activations = SWY_F32,
                                .supports = supports_recurrent,
                                .cost = cost_recurrent,
                                .workspace = workspace_recurrent,
                                .record = record_recurrent,
                                .op_revision = 2},
                               {"delta_rule.recurrent", SWY_OP_DELTA_RULE, kInvariant, SWY_F32, supports_recurrent,
                                cost_recurrent, workspace_recurrent, record_delta_rule}};

}  // namespace

Delta delta_of(const Recording& r) {
  const auto& a = r.attrs<swy_gated_delta_attrs>();
  Delta d;
  d.qkv = r.operands.input("qkv");
  d.z = r.operands.input("z");
  d.b = r.operands.input("b");
  d.a = r.operands.input("a");
  d.conv = r.operands.weight("conv");
  d.a_log = r.operands.weight("a_log");
  d.dt_bias = r.operands.weight("dt_bias");
  d.norm = r.operands.weight("norm");
  d.conv_state = r.operands.state("conv_state");
  d.rule_state = r.operands.state("delta_state");
  d.y = r.operands.output("y");
  if (r.op.revision != 1) {
    d.pending = r.operands.state("pending");
    d.pending_rows = static_cast<uint32_t>(swy::tensor(r.op, "pending").dims[0]);
  }
  const Weight* all[] = {&d.conv, &d.a_log, &d.dt_bias, &d.norm};
  for (uint32_t i = 0; i < 4; ++i) d.types |= (all[i]->form & 15u) << (4 * i);
  d.channels = 2 * a.key_heads * a.key_dim + a.value_heads * a.value_dim;
  return d;
}

Mixed take_mixed(Arena& arena, const swy_op& op, const swy_bucket& bucket) {
  const swy_tensor& qkv = swy::tensor(op, "qkv");
  const uint64_t pending = swy::has(op, "pending") ? bucket.seqs * swy::tensor(op, "pending").dims[0] : 0;
  const uint64_t rows = qkv.dims[0] + pending;
  Mixed m;
  m.rows = arena.take(rows * qkv.dims[1] * 4);
  m.gate = arena.take(rows * static_cast<const swy_gated_delta_attrs*>(op.attrs)->value_heads * 8);
  return m;
}

swy_status record_delta_mix(const Recording& r, const Delta& d, const Mixed& m, bool logarithms) {
  const auto& a = r.attrs<swy_gated_delta_attrs>();
  const uint32_t own = rows_of(r.op), rows = own + r.bucket().seqs * d.pending_rows;
  const uint32_t subgroups = kThreads / r.device().features.subgroup;
  struct {
    uint64_t qkv, b, a, conv, a_log, dt_bias, conv_state, mixed, gate, step, pending;
    uint32_t key_heads, value_heads;
    float l2_eps;
    uint32_t pending_rows, first_pending, unused;
  } push{};
  push = {d.qkv.address,
          d.b.address,
          d.a.address,
          d.conv.data,
          d.a_log.data,
          d.dt_bias.data,
          d.conv_state.address,
          m.rows.address,
          m.gate.address,
          r.step(),
          d.pending.address,
          a.key_heads,
          a.value_heads,
          a.l2_eps,
          d.pending_rows,
          own,
          0};
  return launch(r, kPrepare, {a.key_dim, a.value_dim, a.conv_kernel, d.types, logarithms},
                {ceil_div(2 * a.key_heads + a.value_heads, subgroups), at_most(rows, 16384)}, push,
                {d.qkv, d.b, d.a, d.conv_state, d.pending}, {m.rows, m.gate});
}

swy_status record_stands(const Recording& r, const Delta& d, const Mixed& m) {
  return record_rule(r, d, m, r.attrs<swy_gated_delta_attrs>().conv_kernel, true);
}

swy_status record_delta_gate(const Recording& r, const Delta& d) {
  const auto& a = r.attrs<swy_gated_delta_attrs>();
  const uint32_t rows = rows_of(r.op);
  struct {
    uint64_t y, z, norm, step, qkv, b, a, pending;
    uint32_t value_heads;
    float norm_eps;
    uint32_t channels, pending_rows;
  } push{};
  push = {d.y.address, d.z.address,       d.norm.data,   r.step(),   d.qkv.address, d.b.address,
          d.a.address, d.pending.address, a.value_heads, a.norm_eps, d.channels,    d.pending_rows};
  return launch(r, kGate, {a.key_dim, a.value_dim, a.conv_kernel, d.types},
                {ceil_div(a.value_heads, kThreads / r.device().features.subgroup), at_most(rows, 16384)}, push,
                {d.z, d.qkv, d.b, d.a}, {d.y, d.pending});
}

std::span<const Kernel> gated_delta_kernels() { return kKernels; }

}  // namespace gpu
