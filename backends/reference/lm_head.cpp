// SPDX-License-Identifier: Apache-2.0
// LM_HEAD and GATHER_ROWS: logits [logit rows, vocab] of the wanted rows.
#include <cstring>

#include "arithmetic.h"
#include "kernels.h"

namespace reference {
namespace {

void gather(const swy::Call& call, float* to) {
  const uint64_t width = swy::tensor(*call.op, "x").dims[1];
  const float* x = call.input("x");
  const uint32_t* wanted = SWY_STEP_ARRAY(call.step, uint32_t, logit_row_at);
  const auto [first, last] = call.split(call.step->logit_rows);
  for (uint64_t i = first; i < last; ++i) {
    std::memcpy(to + i * width, x + uint64_t{wanted[i]} * width, width * 4);
  }
}

void gather_rows(const swy::Call& call) { gather(call, call.output("y")); }

// Workspace: scratch, then the gathered rows [logit rows, hidden].
uint64_t lm_head_workspace(const swy_op& op, const swy_bucket& bucket) {
  const uint64_t hidden = swy::tensor(op, "x").dims[1];
  return scratch_bytes(kBlock * hidden) + bucket.logit_rows * hidden * 4;
}

void lm_head(const swy::Call& call) {
  const Weight w(call, "w");
  lm_head_rows(call, w, call.work<float>(scratch_bytes(kBlock * w.width())), call.output("logits"));
}

double lm_head_cost(const swy_op& op, const swy_bucket& bucket) {
  const swy_tensor& w = swy::tensor(op, "w");
  return cost_of(static_cast<double>(w.dims[0] * w.dims[1]) * bucket.logit_rows);
}

constexpr swy::HostKernel kKernels[] = {
    {.name = "lm_head.plain",
     .op = SWY_OP_LM_HEAD,
     .weight_dtypes = kMatrices,
     .cost = lm_head_cost,
     .run = lm_head,
     .workspace = lm_head_workspace},
    {.name = "gather_rows.plain", .op = SWY_OP_GATHER_ROWS, .cost = generic_cost, .run = gather_rows},
};

}  // namespace

void lm_head_rows(const swy::Call& call, const Weight& w, float* rows, float* logits) {
  gather(call, rows);
  call.barrier();
  linear_rows(call, w, rows, call.step->logit_rows, logits, w.rows(), scratch(call, kBlock * w.width()));
}

std::span<const swy::HostKernel> lm_head_kernels() { return kKernels; }

}  // namespace reference
