// SPDX-License-Identifier: Apache-2.0
// MOE, MOE_ADD and EXPERTS for few rows, each with its own experts.
//
//   router    logits by the shaders of LINEAR; the choice in gate and up, or by router.comp
//   gate_up   h = act(gate, up) of the chosen experts and the shared one (moe_gate_up.comp)
//   down      y = sum p_e (down_e h_e + bias_e) + sigmoid(mix) * shared (+ residual) (moe_down.comp)
//
// *.vector reads weights in 16-byte pieces; *.plain takes any shape.
#include "moe.h"

#include <algorithm>

namespace gpu {
namespace {

#include "moe_down.comp.h"
#include "moe_down.dot.h"
#include "moe_down.plain.h"
#include "moe_gate_up.comp.h"
#include "moe_gate_up.dot.h"
#include "moe_gate_up.plain.h"
constexpr Shader kGateUp[] = {SWY_SHADER(moe_gate_up_comp), SWY_SHADER(moe_gate_up_dot)};
constexpr Shader kDown[] = {SWY_SHADER(moe_down_comp), SWY_SHADER(moe_down_dot)};
constexpr Shader kGateUpPlain = SWY_SHADER(moe_gate_up_plain);
constexpr Shader kDownPlain = SWY_SHADER(moe_down_plain);
constexpr uint32_t kMostChosenHere = 512;  // experts that the gate-and-up shader can choose from

struct GateUpPush {
  uint64_t x, h, ids, weights, logits, step, gate_up, shared_gate, shared_up, biases;
  uint32_t hidden, experts, top_k, width, shared_width, domain;
  float alpha, limit;
};
struct DownPush {
  uint64_t h, y, residual, ids, weights, mix, step, down, shared_down, biases;
  uint32_t hidden, experts, top_k, width, shared_width, domain;
};

GateUpPush gate_up_push(const Recording& r, const Mixture& m) {
  const Activation act = m.activation();
  return {m.x.address,      m.h.address,
          m.ids.address,    m.weights.address,
          m.logits.address, r.step(),
          m.gate_up.data,   m.shared_gate.data,
          m.shared_up.data, m.gate_up_bias.data,
          m.hidden,         m.experts,
          m.top_k,          m.width,
          m.shared_width,   m.domain,
          act.alpha,        act.limit};
}
DownPush down_push(const Recording& r, const Mixture& m) {
  return {m.h.address, m.y.address, m.residual.address, m.ids.address,    m.weights.address, m.mix.address,
          r.step(),    m.down.data, m.shared_down.data, m.down_bias.data, m.hidden,          m.experts,
          m.top_k,     m.width,     m.shared_width,     m.domain};
}

// kFlags of mixture.glsl, but for kChoose.
uint32_t gate_up_flags(const Mixture& m) {
  return (m.shared_width != 0 ? 1u : 0u) | (m.activation().clamped ? 8u : 0u) | (m.gate_up_bias.form & 15u) << 8;
}
uint32_t down_flags(const Mixture& m) {
  return (m.shared_width != 0 ? 1u : 0u) | (m.residual.bytes != 0 ? 2u : 0u) | (m.down_bias.form & 15u) << 8;
}

uint32_t gate_up_tasks(const Mixture& m, uint32_t per_task) {
  return m.top_k * ceil_div(m.width, per_task) + ceil_div(m.shared_width, per_task);
}

// Forms of the activations for products of bytes with these two weights; 0 if there are none.
uint32_t forms_of(bool bytes, const Weight& a, const Weight& b) {
  return bytes ? form_of(a.form) | form_of(b.form) : 0;
}

// How many slots' h the down shader can stage at a time, beside the shared expert's; 0: not one.
uint32_t slots_at_once(const swy_device& device, const swy_moe_attrs& a, uint32_t forms) {
  uint32_t slots = a.top_k;
  while (slots > 0 && vector_shape(device, 1, slots * a.width + a.shared_width, forms).m == 0) --slots;
  return slots;
}

template <bool kBytes>
swy_status record_moe_vector(const Recording& r) {
  Arena arena(r.operands.workspace());
  const Mixture m = mixture_of(r, arena);
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "x").dims[0]);
  SWY_VK_TRY(record_router_logits(r, m, rows));
  const bool choose = m.routes && m.experts <= kMostChosenHere && plain_choice(m.attrs);
  if (m.routes && !choose) SWY_VK_TRY(record_choice(r, m, rows));
  const uint32_t up_forms = forms_of(kBytes, m.gate_up, m.shared_gate);
  const VectorShape up = vector_shape(r.device(), 1, m.hidden, up_forms);
  const Span read = choose ? m.logits : m.ids, written = choose ? m.ids : Span{};
  SWY_VK_TRY(launch(r, kGateUp[kBytes ? 1 : 0],
                    {m.gate_up.form, m.shared_gate.form, gate_up_flags(m) | (choose ? 4u : 0u), 0, 0, 0, 0, 0, 0, 0, 1,
                     4, 1, up.blocks, up_forms},
                    {groups_for(r.device(), gate_up_tasks(m, 2)), rows}, gate_up_push(r, m), {m.x, read},
                    {m.h, written, choose ? m.weights : Span{}}));
  const uint32_t down_forms = forms_of(kBytes, m.down, m.shared_down);
  const uint32_t slots = slots_at_once(r.device(), m.attrs, down_forms);
  VectorShape down = vector_shape(r.device(), 1, slots * m.width + m.shared_width, down_forms);
  take_long_rows(r.device(), m.hidden * rows, slots * m.width, down);
  return launch(r, kDown[kBytes ? 1 : 0],
                {m.down.form, m.shared_down.form, down_flags(m), slots < m.top_k ? slots : 0, 0, 0, 0, 0, 0, 0, 1,
                 down.r, down.u, down.blocks, down_forms},
                {groups_for(r.device(), ceil_div(m.hidden, down.r)), rows}, down_push(r, m),
                {m.h, m.ids, m.weights, m.mix, m.residual}, {m.y});
}

swy_status record_moe_plain(const Recording& r) {
  Arena arena(r.operands.workspace());
  const Mixture m = mixture_of(r, arena);
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "x").dims[0]);
  SWY_VK_TRY(record_router_logits(r, m, rows));
  if (m.routes) SWY_VK_TRY(record_choice(r, m, rows));
  SWY_VK_TRY(launch(r, kGateUpPlain, {m.gate_up.form, m.shared_gate.form, gate_up_flags(m)},
                    {groups_for(r.device(), gate_up_tasks(m, 1)), rows}, gate_up_push(r, m), {m.x, m.ids}, {m.h}));
  return launch(r, kDownPlain, {m.down.form, m.shared_down.form, down_flags(m)},
                {groups_for(r.device(), m.hidden), rows}, down_push(r, m), {m.h, m.ids, m.weights, m.mix, m.residual},
                {m.y});
}

swy_status supports_vector(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  SWY_VK_TRY(supports_router(device, op, bucket, error));
  const swy_moe_attrs a = moe_attrs(op);
  constexpr swy::OperandName kRead[] = {"gate_up", "down", "shared_gate_proj", "shared_up_proj", "shared_down_proj"};
  for (const swy::OperandName name : kRead) {
    const uint32_t i = swy::at(op, name);
    if (i != UINT32_MAX && !readable_in_pieces(*op.weights[i])) return refuse_rows(op, i, error);
  }
  if (!shared_alike(op)) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "the shared expert's gate and up differ in encoding");
  }
  const auto hidden = static_cast<uint32_t>(swy::tensor(op, "x").dims[1]);
  if (vector_shape(device, 1, hidden, 7).m == 0 || slots_at_once(device, a, 0) == 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "rows of %u and %u do not fit the shared memory", hidden,
                     a.width + a.shared_width);
  }
  return SWY_OK;
}

double cost_moe_vector(const swy_op& op, const swy_bucket&) {
  const swy_moe_attrs a = moe_attrs(op);
  const double rows = static_cast<double>(swy::tensor(op, "x").dims[0]),
               share = static_cast<double>(a.top_k) / a.experts;
  double bytes = row_bytes(op), elements = 0;
  for (uint32_t i = 0; i < matrix_count(op); ++i) {
    const double part = op.weights[i]->rank == 3 ? share : 1;
    bytes += weight_bytes(*op.weights[i]) * part * rows * (op.weights[i]->rank == 3 ? 1 : 0.25);
    double n = part;
    for (uint32_t d = 0; d < op.weights[i]->rank; ++d) n *= static_cast<double>(op.weights[i]->dims[d]);
    elements += n * rows;
  }
  return 18 + bytes / 1.0e6 + elements / 6e6;
}
double cost_moe_plain(const swy_op& op, const swy_bucket& bucket) { return 20 * cost_moe_vector(op, bucket); }
uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket&) { return mixture_workspace(op); }

constexpr Kernel vector_kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kInvariant,
          .activations = SWY_F32,
          .supports = supports_vector,
          .cost = cost_moe_vector,
          .workspace = workspace,
          .record = record_moe_vector<false>,
          .op_revision = 2,
          .weight_dtypes = kMatrices};
}
constexpr Kernel dot_kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kInvariant,
          .activations = SWY_BF16,
          .supports = supports_mixture_dot,
          .cost = cost_mixture_dot,
          .workspace = workspace,
          .record = record_moe_vector<true>,
          .op_revision = 2};
}
constexpr Kernel plain_kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kInvariant,
          .activations = SWY_F32,
          .supports = supports_router,
          .cost = cost_moe_plain,
          .workspace = workspace,
          .record = record_moe_plain,
          .op_revision = 2,
          .weight_dtypes = kMatrices};
}
constexpr Kernel kKernels[] = {
    vector_kernel("moe.vector", SWY_OP_MOE),         vector_kernel("moe_add.vector", SWY_OP_MOE_ADD),
    vector_kernel("experts.vector", SWY_OP_EXPERTS), dot_kernel("moe.dot", SWY_OP_MOE),
    dot_kernel("moe_add.dot", SWY_OP_MOE_ADD),       dot_kernel("experts.dot", SWY_OP_EXPERTS),
    plain_kernel("moe.plain", SWY_OP_MOE),           plain_kernel("moe_add.plain", SWY_OP_MOE_ADD),
    plain_kernel("experts.plain", SWY_OP_EXPERTS),
};

}  // namespace

swy_status supports_mixture_dot(const swy_device& device, const swy_op& op, const swy_bucket& bucket,
                                swy_error* error) {
  SWY_VK_TRY(dot_usable(device, error));
  SWY_VK_TRY(supports_vector(device, op, bucket, error));
  const swy_moe_attrs a = moe_attrs(op);
  uint32_t forms = form_of(swy::tensor(op, "down").dtype);
  if (a.shared_width != 0) forms |= form_of(swy::tensor(op, "shared_down_proj").dtype);
  if (slots_at_once(device, a, forms) != 0) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "rows of %u do not fit the shared memory",
                   a.width + a.shared_width);
}

double cost_mixture_dot(const swy_op& op, const swy_bucket& bucket) { return 0.7 * cost_moe_vector(op, bucket); }

bool shared_alike(const swy_op& op) {
  if (!swy::has(op, "shared_gate_proj")) return true;
  const swy_tensor &gate = swy::tensor(op, "shared_gate_proj"), &up = swy::tensor(op, "shared_up_proj");
  return gate.dtype == up.dtype && gate.group == up.group;
}

swy_moe_attrs moe_attrs(const swy_op& op) {
  swy_moe_attrs a = swy_moe_of(&op);
  if (op.id == SWY_OP_EXPERTS) a.shared_width = 0;
  return a;
}

uint32_t matrix_count(const swy_op& op) {
  uint32_t n = op.weight_count;
  for (const swy::OperandName bias : {swy::OperandName("router_bias"), swy::OperandName("correction_bias"),
                                      swy::OperandName("gate_up_bias"), swy::OperandName("down_bias")}) {
    n = std::min(n, swy::at(op, bias));
  }
  return n;
}

Mixture mixture_of(const Recording& r, Arena& arena) {
  const swy_op& op = r.op;
  const swy_moe_attrs a = moe_attrs(op);
  const swy_tensor& x = swy::tensor(op, "x");
  const uint64_t rows = x.dims[0];
  Mixture m;
  m.x = r.operands.input("x");
  m.residual = r.operands.input("residual");
  m.y = r.operands.output("y");
  m.hidden = static_cast<uint32_t>(x.dims[1]);
  m.attrs = a;
  m.experts = a.experts;
  m.top_k = a.top_k;
  m.width = a.width;
  m.shared_width = a.shared_width;
  m.domain = x.rows;
  m.routes = !swy::has(op, "expert_ids");
  m.gate_up = r.operands.weight("gate_up");
  m.down = r.operands.weight("down");
  m.router = r.operands.weight("router");
  m.shared_gate = r.operands.weight("shared_gate_proj");
  m.shared_up = r.operands.weight("shared_up_proj");
  m.shared_down = r.operands.weight("shared_down_proj");
  m.shared_mix = r.operands.weight("shared_gate");
  m.router_bias = r.operands.weight("router_bias");
  m.correction = r.operands.weight("correction_bias");
  m.gate_up_bias = r.operands.weight("gate_up_bias");
  m.down_bias = r.operands.weight("down_bias");
  m.ids = arena.take(rows * a.top_k * 4);
  m.weights = arena.take(rows * a.top_k * 4);
  m.mix = arena.take(rows * 4);
  m.logits = arena.take(rows * a.experts * 4);
  m.h = arena.take(rows * (a.top_k * a.width + a.shared_width) * 4);
  if (!m.routes) {
    m.ids = r.operands.input("expert_ids");
    m.weights = r.operands.input("expert_weights");
  }
  return m;
}

uint64_t mixture_workspace(const swy_op& op) {
  const swy_moe_attrs a = moe_attrs(op);
  const uint64_t rows = swy::tensor(op, "x").dims[0];
  Arena arena;
  arena.take(rows * a.top_k * 4);
  arena.take(rows * a.top_k * 4);
  arena.take(rows * 4);
  arena.take(rows * a.experts * 4);
  arena.take(rows * (a.top_k * a.width + a.shared_width) * 4);
  return arena.used();
}

std::span<const Kernel> moe_kernels() { return kKernels; }

}  // namespace gpu
