// SPDX-License-Identifier: Apache-2.0
// Shared by the two forms of MOE and EXPERTS: the workspace, the router, and the order of the experts' rows.
#pragma once

#include <atomic>

#include "projection.h"

namespace cpu {

using Moe = swy::Operands<SWY_OP_MOE, SWY_OP_MOE_ADD>;
using Experts = swy::Operands<SWY_OP_EXPERTS>;
using AnyMoe = swy::Operands<SWY_OP_MOE, SWY_OP_MOE_ADD, SWY_OP_EXPERTS>;

// The places of the experts' weights: EXPERTS has no router before them.
inline uint32_t gate_up_of(const swy_op& op) {
  return op.id == SWY_OP_EXPERTS ? Experts::weight("gate_up") : Moe::weight("gate_up");
}
inline uint32_t down_of(const swy_op& op) {
  return op.id == SWY_OP_EXPERTS ? Experts::weight("down") : Moe::weight("down");
}
// The matrices come first; biases follow from revision 2 on.
inline uint32_t matrices_of(const swy_op& op) {
  if (op.id == SWY_OP_EXPERTS) return Experts::weight("down") + 1;
  const bool shared = static_cast<const swy_moe_attrs*>(op.attrs)->shared_width != 0;
  return (shared ? Moe::weight("shared_gate") : Moe::weight("down")) + 1;
}
inline uint64_t bucket_rows(const swy_op& op) { return op.inputs[AnyMoe::input("x")]->dims[0]; }

struct MoeShape {
  uint64_t rows, hidden;
  uint32_t experts, top_k, width, shared_width;
  uint32_t slots;  // results per row: top_k, and one for the shared expert
  MoeShape(const swy_op& op, uint64_t rows_);
  // Ids may come from outside: those of no expert count as the last one.
  uint32_t expert_of(int32_t id) const { return std::min(static_cast<uint32_t>(id), experts - 1); }
  uint32_t width_of(uint32_t slot) const { return slot < top_k ? width : shared_width; }
  uint32_t widest() const { return std::max(width, shared_width); }
};

// How rows choose their experts.
class Routing {
 public:
  explicit Routing(const swy::Call& call);
  // Of `row`, for one member.
  static uint64_t scratch_floats(const swy_op& op);
  // The experts of a row with these logits [experts], in their order, and their weights [top_k].
  void row(const float* logits, float* scratch, int32_t* ids, float* weights) const;

 private:
  void choose(const float* logits, float* choices) const;
  void weigh(const float* logits, const int32_t* ids, float* weights) const;

  swy_moe_attrs a_;
  OptionalPlain correction_;
};

// The activation of all experts, and the biases that an operation has.
class MoeExtras {
 public:
  explicit MoeExtras(const swy::Call& call)
      : router_bias(call, "router_bias"),
        act_(swy_moe_of(call.op)),
        gate_up_(call, "gate_up_bias"),
        down_(call, "down_bias"),
        width_(call.attrs<swy_moe_attrs>().width),
        hidden_(call.op->inputs[AnyMoe::input("x")]->dims[1]) {}
  const Activation& shared_act() const { return act_; }
  // Of n columns of an expert from `first` on, n at most 16; `memory` [32] has their biases.
  Activation act(uint64_t expert, uint64_t first, uint64_t n, float* memory) const {
    Activation act = act_;
    act.gate_bias = gate_up_.load(2 * expert * width_ + first, n, memory);
    act.up_bias = gate_up_.load((2 * expert + 1) * width_ + first, n, memory + kPanelRows);
    return act;
  }
  // Of n columns of an expert's down from `first` on; NULL: none.
  const float* down_bias(uint64_t expert, uint64_t first, uint64_t n, float* memory) const {
    return down_.load(expert * hidden_ + first, n, memory);
  }

  const OptionalPlain router_bias;

 private:
  Activation act_;
  OptionalPlain gate_up_, down_;
  uint64_t width_, hidden_;
};

struct MoeWork {
  float* logits;   // [rows, experts]
  float* mix;      // [rows]: the shared expert's gate, before its sigmoid
  int32_t* ids;    // [rows, top_k]
  float* weights;  // [rows, top_k]
  uint64_t route_floats;
  float* route;  // per member: scratch of the routing
  RowForms x;
  MoeWork(Arena& arena, Mode mode, const swy_op& op, const MoeShape& s)
      : logits(arena.take<float>(s.rows * s.experts)),
        mix(arena.take<float>(s.rows)),
        ids(arena.take<int32_t>(s.rows * s.top_k)),
        weights(arena.take<float>(s.rows * s.top_k)),
        route_floats(Routing::scratch_floats(op)),
        route(arena.take<float>(route_floats * swy::team_width)),
        x(arena, forms_of_x(mode, op, s.shared_width != 0), s.rows, s.hidden) {}
  // Of the weights that multiply x: all but the two down.
  static uint32_t forms_of_x(Mode mode, const swy_op& op, bool shared) {
    uint32_t forms = form_of(mode, op, gate_up_of(op));
    if (op.id != SWY_OP_EXPERTS) forms |= form_of(mode, op, Moe::weight("router"));
    if (!shared) return forms;
    return forms | form_of(mode, op, Moe::weight("shared_gate_proj")) |
           form_of(mode, op, Moe::weight("shared_up_proj")) | form_of(mode, op, Moe::weight("shared_gate"));
  }
  static uint32_t form_of(Mode mode, const swy_op& op, uint32_t weight) {
    return forms_of(mode, op, weight, weight + 1);
  }
};

// The panels of an operation's matrices. Experts' gate and up are matrices 2e and 2e + 1 of gate_up.
struct MoePanels {
  Panels router, gate_up, down, shared_gate, shared_up, shared_down, mix;
  explicit MoePanels(const swy::Call& call);
};

// Kernels of the two forms.
template <Mode kMode>
void moe_by_panel(const swy::Call& call);  // few rows: every expert of a row is spread over the team
template <Mode kMode>
uint64_t moe_by_panel_workspace(const swy_op& op, const swy_bucket& bucket);
template <Mode kMode>
void moe_by_expert(const swy::Call& call);  // many rows: rows sorted by expert, an expert at a time per member
template <Mode kMode>
uint64_t moe_by_expert_workspace(const swy_op& op, const swy_bucket& bucket);

// Expert ids and weights come from the router, or from the operation's inputs.
using Injected = swy::Operands<SWY_OP_MOE, SWY_OP_EXPERTS>;
inline bool injected(const swy_op& op) {
  return op.id != SWY_OP_MOE_ADD && op.input_count > Injected::input("expert_ids");
}
inline const float* residual_of(const swy::Call& call) {
  return call.op->id == SWY_OP_MOE_ADD ? call.input(swy::Operands<SWY_OP_MOE_ADD>::input("residual")) : nullptr;
}

}  // namespace cpu
