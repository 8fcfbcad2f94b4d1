// SPDX-License-Identifier: Apache-2.0
// Shared by the two forms of MOE and EXPERTS: the workspace, the router, and the order of the experts' rows.
#pragma once

#include <atomic>

#include "projection.h"

namespace cpu {

// Weights of MOE and MOE_ADD by their place in the operation.
enum MoeWeight : uint32_t {
  kRouter = 0,
  kGateUp = 1,
  kDown = 2,
  kSharedGateProj = 3,
  kSharedUpProj = 4,
  kSharedDownProj = 5,
  kSharedGate = 6,
};

// The place of gate_up or down: EXPERTS has no router before them.
inline uint32_t place_of(const swy_op& op, MoeWeight weight) { return op.id == SWY_OP_EXPERTS ? weight - 1 : weight; }

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

struct MoeWork {
  float* logits;   // [rows, experts]
  float* mix;      // [rows]: the shared expert's gate, before its sigmoid
  int32_t* ids;    // [rows, top_k]
  float* weights;  // [rows, top_k]
  RowForms x;
  MoeWork(Arena& arena, Mode mode, const swy_op& op, const MoeShape& s)
      : logits(arena.take<float>(s.rows * s.experts)),
        mix(arena.take<float>(s.rows)),
        ids(arena.take<int32_t>(s.rows * s.top_k)),
        weights(arena.take<float>(s.rows * s.top_k)),
        x(arena,
          forms_of(mode, op, kRouter, place_of(op, kDown)) |
              (s.shared_width != 0 ? forms_of(mode, op, 3, 5) | forms_of(mode, op, kSharedGate, kSharedGate + 1) : 0),
          s.rows, s.hidden) {}
};

// The top_k largest of softmax(logits [experts]), divided by their sum; of equal ones the lowest id.
void route_row(const float* logits, uint32_t experts, uint32_t top_k, int32_t* ids, float* weights);

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
inline bool injected(const swy_op& op) { return op.id != SWY_OP_MOE_ADD && op.input_count == 3; }
inline const float* residual_of(const swy::Call& call) {
  return call.op->id == SWY_OP_MOE_ADD ? call.input(1) : nullptr;
}

}  // namespace cpu
