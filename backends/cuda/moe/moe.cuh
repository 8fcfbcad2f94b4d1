// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels of MOE: its operands, and the router.
#pragma once

#include "common/vector.cuh"
#include "host/kernels.h"

namespace gpu {

// How the router chooses, from its logits (MOE r2 in ops.h).
struct Choice {
  swy_router router;
  bool normalize;
  uint32_t groups, top_groups;
  float scale;
  Bias correction;
  bool plain;  // the largest logits, with weights that sum to 1
};

struct Mixture {
  const float* x;         // [rows, hidden]
  const float* residual;  // [rows, hidden], or null
  float* y;               // [rows, hidden]
  int32_t* ids;           // [rows, top_k]
  float* p;               // [rows, top_k]
  float* shared_p;        // [rows]: sigmoid of the shared expert's gate
  float* logits;          // [rows, experts]
  float* h;               // [rows, top_k * width + shared_width]: act(gate, up)
  Weight router, gate_up, down, shared_gate, shared_up, shared_down, shared_mix;
  Bias router_bias, gate_up_bias, down_bias;  // [experts], [experts, 2 * width], [experts, hidden]
  Choice choice;
  Activation act;
  uint32_t hidden, experts, top_k, width, shared_width;
  swy_rows domain;
  bool routes;  // the router chooses; otherwise ids and p are inputs

  __host__ __device__ uint32_t h_width() const { return top_k * width + shared_width; }
};

// The operands of MOE, MOE_ADD or EXPERTS. `arena` provides the workspace; h only if it is wanted.
Mixture mixture_of(const Recording& r, Arena& arena, bool with_h = true);
uint64_t mixture_workspace(const swy_op& op, bool with_h = true);
swy_moe_attrs moe_attrs(const swy_op& op);
// How a MOE, its fused form or a ROUTER_TOPK chooses.
Choice choice_of(const Recording& r);

// The number of weights that are matrices; vectors follow.
uint32_t matrix_count(const swy_op& op);

// The cost of many rows: bytes of the weights that are read (of experts, those that some row chooses), and
// multiply-adds.
struct MixtureWork {
  double weight_bytes, multiply_adds;
};
MixtureWork mixture_work(const swy_op& op);

// Whether `usable` accepts the weights of all experts, and the shared expert's gate and up have the same encoding.
// `how`: the purpose, for the reason of a refusal.
swy_status supports_experts(const swy_op& op, bool (*usable)(const swy_tensor&), const char* how, swy_error* error);
// Whether the router supports this number of experts.
swy_status supports_router(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error);
// Fills ids, p and shared_p.
swy_status record_router(const Recording& r, const Mixture& m, uint32_t rows, uint32_t* counters);
// y [rows, rows of w] = x w^T + bias, in fp32, as LINEAR does it for few rows.
swy_status record_mixture_product(const Recording& r, const Mixture& m, const Weight& w, const Bias& bias, float* y,
                                  uint32_t rows);
// Fills ids and p from logits.
swy_status record_choice(const Recording& r, const Mixture& m, uint32_t rows);

}  // namespace gpu
