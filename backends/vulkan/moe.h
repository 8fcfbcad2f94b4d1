// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels of MOE: its operands, and the router.
#pragma once

#include "activation.h"
#include "projection.h"

namespace gpu {

struct Mixture {
  Span x, residual, y;  // [rows, hidden]; no residual: no bytes
  Span ids, weights;    // [rows, top_k]: the router's choice
  Span logits, mix;     // [rows, experts], [rows]: logits of the experts, and the shared expert's gate
  Span h;               // [rows, top_k * width + shared_width]: act(gate, up)
  Weight router, gate_up, down, shared_gate, shared_up, shared_down, shared_mix;
  Weight router_bias, correction, gate_up_bias, down_bias;  // without an address: none
  swy_moe_attrs attrs{};
  uint32_t hidden = 0, experts = 0, top_k = 0, width = 0, shared_width = 0;
  swy_rows domain = SWY_ROWS_STEP;
  bool routes = false;  // the router chooses; otherwise ids and weights are inputs
  Activation activation() const { return activation_of(attrs); }
};

// The operands of MOE, MOE_ADD or EXPERTS. `arena` provides the workspace.
Mixture mixture_of(const Recording& r, Arena& arena);
uint64_t mixture_workspace(const swy_op& op);
swy_moe_attrs moe_attrs(const swy_op& op);
// How many of its weights are matrices. They come first; biases follow.
uint32_t matrix_count(const swy_op& op);
// Whether the choice is that of the largest logits, with weights that sum to 1 (router.glsl).
bool plain_choice(const swy_moe_attrs& a);
// Whether the shared expert, if there is one, has gate and up in one encoding.
bool shared_alike(const swy_op& op);

// Of the kernels moe.dot and moe_add.dot.
swy_status supports_mixture_dot(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error);
double cost_mixture_dot(const swy_op& op, const swy_bucket& bucket);

// Whether the router supports this number of experts.
swy_status supports_router(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error);
// Fills logits and mix.
swy_status record_router_logits(const Recording& r, const Mixture& m, uint32_t rows);
// Fills ids and weights from logits.
swy_status record_choice(const Recording& r, const Mixture& m, uint32_t rows);

}  // namespace gpu
