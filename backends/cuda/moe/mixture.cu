// SPDX-License-Identifier: Apache-2.0
// The operands and the work of MOE, MOE_ADD and EXPERTS, for all their kernels.
#include "mixture.h"

#include "common/projection.cuh"
#include "moe.cuh"

namespace gpu {

bool shared_of_one_type(const swy_op& op) {
  return !swy::has(op, "shared_gate_proj") ||
         swy::tensor(op, "shared_gate_proj").dtype == swy::tensor(op, "shared_up_proj").dtype;
}

swy_moe_attrs moe_attrs(const swy_op& op) {
  swy_moe_attrs a = swy_moe_of(&op);
  if (op.id == SWY_OP_EXPERTS) a.shared_width = 0;
  return a;
}

uint32_t matrix_count(const swy_op& op) {
  constexpr swy::OperandName kVectors[] = {"router_bias", "correction_bias", "gate_up_bias"};  // in this order
  for (const swy::OperandName name : kVectors) {
    if (swy::has(op, name)) return swy::at(op, name);
  }
  return op.weight_count;
}

Mixture mixture_of(const Recording& r, Arena& arena, bool with_h) {
  const swy_op& op = r.op;
  const swy_moe_attrs a = moe_attrs(op);
  const uint64_t rows = swy::tensor(op, "x").dims[0];
  Mixture m{};
  m.x = r.operands.input("x");
  m.residual = r.operands.input("residual");
  m.y = r.operands.output("y");
  m.hidden = static_cast<uint32_t>(swy::tensor(op, "x").dims[1]);
  m.experts = a.experts;
  m.top_k = a.top_k;
  m.width = a.width;
  m.shared_width = a.shared_width;
  m.domain = swy::tensor(op, "x").rows;
  m.routes = !swy::has(op, "expert_ids");
  m.gate_up = r.operands.weight("gate_up");
  m.down = r.operands.weight("down");
  m.router = r.operands.weight("router");
  m.shared_gate = r.operands.weight("shared_gate_proj");
  m.shared_up = r.operands.weight("shared_up_proj");
  m.shared_down = r.operands.weight("shared_down_proj");
  m.shared_mix = r.operands.weight("shared_gate");
  m.router_bias = r.operands.bias("router_bias");
  m.gate_up_bias = r.operands.bias("gate_up_bias");
  m.down_bias = r.operands.bias("down_bias");
  m.choice = choice_of(r);
  m.act = activation_of(a);
  m.ids = arena.take<int32_t>(rows * a.top_k);
  m.p = arena.take<float>(rows * a.top_k);
  m.shared_p = arena.take<float>(rows);
  m.logits = arena.take<float>(rows * a.experts);
  m.h = with_h ? arena.take<float>(rows * m.h_width()) : nullptr;
  if (!m.routes) {
    m.ids = r.operands.input<int32_t>("expert_ids");
    m.p = r.operands.input("expert_weights");
  }
  return m;
}

uint64_t mixture_workspace(const swy_op& op, bool with_h) {
  const swy_moe_attrs a = moe_attrs(op);
  const uint64_t rows = swy::tensor(op, "x").dims[0];
  Arena arena(nullptr);
  arena.take<int32_t>(rows * a.top_k);
  arena.take<float>(rows * a.top_k);
  arena.take<float>(rows);
  arena.take<float>(rows * a.experts);
  if (with_h) arena.take<float>(rows * (a.top_k * a.width + a.shared_width));
  return arena.used();
}

MixtureWork mixture_work(const swy_op& op) {
  const swy_moe_attrs a = moe_attrs(op);
  const double rows = static_cast<double>(swy::tensor(op, "x").dims[0]),
               share = static_cast<double>(a.top_k) / a.experts;
  double untouched = 1;  // the share of experts that no row picks
  for (uint32_t i = 0; i < rows && untouched > 1e-3; ++i) untouched *= 1 - share;
  MixtureWork work{};
  for (uint32_t i = 0; i < matrix_count(op); ++i) {
    const bool routed = op.weights[i]->rank == 3;
    work.weight_bytes += weight_bytes(*op.weights[i]) * (routed ? 1 - untouched : 1);
    double n = routed ? share : 1;
    for (uint32_t d = 0; d < op.weights[i]->rank; ++d) n *= static_cast<double>(op.weights[i]->dims[d]);
    work.multiply_adds += n * rows;
  }
  return work;
}

swy_status supports_experts(const swy_op& op, bool (*usable)(const swy_tensor&), const char* how, swy_error* error) {
  for (const swy::OperandName name : kExpertWeights) {
    const uint32_t i = swy::at(op, name);
    if (i == UINT32_MAX || usable(*op.weights[i])) continue;
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "weight %u cannot be %s: bf16 or quantized rows of a multiple of 32 are needed", i, how);
  }
  if (shared_of_one_type(op)) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "the shared expert's gate and up differ in encoding");
}

swy_status record_mixture_product(const Recording& r, const Mixture& m, const Weight& w, const Bias& bias, float* y,
                                  uint32_t rows) {
  Projection p{};
  p.x = m.x;
  p.y[0] = y;
  p.weights[0] = w;
  p.biases[0] = bias;
  p.count = 1;
  p.width = m.hidden;
  p.forms = form_of(w.dtype);
  p.domain = m.domain;
  return record_projection(r, p, rows);
}

}  // namespace gpu
