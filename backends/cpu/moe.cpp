// SPDX-License-Identifier: Apache-2.0
// MOE, MOE_ADD and the piece EXPERTS: the kernels' descriptions, and what their two forms share.
#include "moe.h"

#include <cmath>

#include "isa.h"
#include "switchyard/sdk/error.hpp"

namespace cpu {

MoeShape::MoeShape(const swy_op& op, uint64_t rows_) : rows(rows_), hidden(op.inputs[AnyMoe::input("x")]->dims[1]) {
  const auto& a = *static_cast<const swy_moe_attrs*>(op.attrs);
  experts = a.experts;
  top_k = a.top_k;
  width = a.width;
  shared_width = op.id == SWY_OP_EXPERTS ? 0 : a.shared_width;
  slots = top_k + (shared_width != 0 ? 1 : 0);
}

MoePanels::MoePanels(const swy::Call& call) {
  const auto at = [&](uint32_t i) { return panels_of(*call.op->weights[i], call.weights[i]); };
  gate_up = at(gate_up_of(*call.op)), down = at(down_of(*call.op));
  if (call.op->id == SWY_OP_EXPERTS) return;
  router = at(Moe::weight("router"));
  if (call.attrs<swy_moe_attrs>().shared_width == 0) return;
  shared_gate = at(Moe::weight("shared_gate_proj")), shared_up = at(Moe::weight("shared_up_proj"));
  shared_down = at(Moe::weight("shared_down_proj")), mix = at(Moe::weight("shared_gate"));
}

namespace {

uint32_t layout(const swy_op& op, uint32_t weight) {
  return weight == gate_up_of(op) ? kHalvedPanels : weight < matrices_of(op) ? kPanels : kCanonical;
}

template <Mode kMode>
swy_status supports(const swy_op& op, const swy_bucket&, swy_error* error) {
  if (const swy_status s = mode_usable(kMode, has_quantized(op), error); s != SWY_OK) return s;
  for (uint32_t i = 0; i < matrices_of(op); ++i) {
    PanelShape shape;
    if (const swy_status s = panel_shape(*op.weights[i], layout(op, i), &shape, error); s != SWY_OK) return s;
    constexpr uint32_t kGate = Moe::weight("shared_gate_proj"), kUp = Moe::weight("shared_up_proj");
    if (i == kUp &&
        (op.weights[i]->dtype != op.weights[kGate]->dtype || op.weights[i]->group != op.weights[kGate]->group)) {
      return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE,
                       "the shared expert's gate and up are encoded differently");
    }
    const bool of_experts = i == gate_up_of(op) || i == down_of(op);
    if ((kMode == Mode::tiles_int8 || kMode == Mode::tiles_wide) && of_experts && !shape.quantized()) {
      return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "8-bit tiles multiply 8-bit and 4-bit experts only");
    }
  }
  return SWY_OK;
}

// By panel, a row reads its own experts' weights; by expert, rows that share an expert read its weights once.
template <Mode kMode, bool kByExpert>
double cost(const swy_op& op, const swy_bucket& bucket) {
  const MoeShape s(op, bucket.rows);
  const double one = 3.0 * static_cast<double>(s.hidden) * s.width;
  const double entries = static_cast<double>(s.rows) * s.top_k;
  if (!kByExpert) return 1.0 + entries * product_cost(kMode, one, 1);
  const double untouched = std::pow(1.0 - static_cast<double>(s.top_k) / s.experts, static_cast<double>(s.rows));
  const double touched = s.experts * (1.0 - untouched);
  return 20.0 + touched * product_cost(kMode, one, entries / touched);
}

template <Mode kMode>
constexpr swy::HostKernel by_panel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .weight_dtypes = kMatrices,
          .flags = flags_of(kMode),
          .cost = cost<kMode, false>,
          .run = moe_by_panel<kMode>,
          .workspace = moe_by_panel_workspace<kMode>,
          .supports = supports<kMode>,
          .layout = layout,
          .activations = activations_of(kMode),
          .op_revision = 2};
}
template <Mode kMode>
constexpr swy::HostKernel by_expert(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .weight_dtypes = kMatrices,
          .flags = flags_of(kMode),
          .cost = cost<kMode, true>,
          .run = moe_by_expert<kMode>,
          .workspace = moe_by_expert_workspace<kMode>,
          .supports = supports<kMode>,
          .layout = layout,
          .activations = activations_of(kMode),
          .op_revision = 2};
}

constexpr swy::HostKernel kKernels[] = {
    by_panel<Mode::vector>("moe.vector", SWY_OP_MOE),
    by_panel<Mode::exact>("moe.exact", SWY_OP_MOE),
    by_expert<Mode::vector>("moe.sorted_vector", SWY_OP_MOE),
    by_expert<Mode::tiles_int8>("moe.sorted_tiles_int8", SWY_OP_MOE),
    by_expert<Mode::tiles_wide>("moe.sorted_tiles_wide", SWY_OP_MOE),
    by_expert<Mode::tiles_bf16>("moe.sorted_tiles_bf16", SWY_OP_MOE),
    by_expert<Mode::exact>("moe.sorted_exact", SWY_OP_MOE),
    by_panel<Mode::vector>("moe_add.vector", SWY_OP_MOE_ADD),
    by_panel<Mode::exact>("moe_add.exact", SWY_OP_MOE_ADD),
    by_expert<Mode::vector>("moe_add.sorted_vector", SWY_OP_MOE_ADD),
    by_expert<Mode::tiles_int8>("moe_add.sorted_tiles_int8", SWY_OP_MOE_ADD),
    by_expert<Mode::tiles_wide>("moe_add.sorted_tiles_wide", SWY_OP_MOE_ADD),
    by_expert<Mode::tiles_bf16>("moe_add.sorted_tiles_bf16", SWY_OP_MOE_ADD),
    by_expert<Mode::exact>("moe_add.sorted_exact", SWY_OP_MOE_ADD),
    by_panel<Mode::vector>("experts.vector", SWY_OP_EXPERTS),
    by_panel<Mode::exact>("experts.exact", SWY_OP_EXPERTS),
    by_expert<Mode::vector>("experts.sorted_vector", SWY_OP_EXPERTS),
    by_expert<Mode::tiles_int8>("experts.sorted_tiles_int8", SWY_OP_EXPERTS),
    by_expert<Mode::tiles_wide>("experts.sorted_tiles_wide", SWY_OP_EXPERTS),
    by_expert<Mode::tiles_bf16>("experts.sorted_tiles_bf16", SWY_OP_EXPERTS),
    by_expert<Mode::exact>("experts.sorted_exact", SWY_OP_EXPERTS),
};

}  // namespace

std::span<const swy::HostKernel> moe_kernels() { return kKernels; }

}  // namespace cpu
