// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/naive.h"

#include "plugins_api/check/failure.h"

namespace switchyard::check {

Naive naive_of(swy_op_id op) {
  switch (op) {
    case SWY_OP_ADD:
      return naive::add;
    case SWY_OP_SILU_MUL:
      return naive::silu_mul;
    case SWY_OP_SIGMOID_MUL:
      return naive::sigmoid_mul;
    case SWY_OP_SIGMOID_SCALE_ADD:
      return naive::sigmoid_scale_add;
    case SWY_OP_RMS_NORM:
      return naive::rms_norm;
    case SWY_OP_ADD_RMS_NORM:
      return naive::add_rms_norm;
    case SWY_OP_HEAD_RMS_NORM:
      return naive::head_rms_norm;
    case SWY_OP_GATED_RMS_NORM:
      return naive::gated_rms_norm;
    case SWY_OP_LINEAR:
      return naive::linear;
    case SWY_OP_LINEAR_ADD:
      return naive::linear_add;
    case SWY_OP_RMS_NORM_LINEAR:
      return naive::rms_norm_linear;
    case SWY_OP_EMBEDDING:
      return naive::embedding;
    case SWY_OP_MLP:
      return naive::mlp;
    case SWY_OP_MLP_ADD:
      return naive::mlp_add;
    case SWY_OP_MOE:
      return naive::moe;
    case SWY_OP_MOE_ADD:
      return naive::moe_add;
    case SWY_OP_EXPERTS:
      return naive::experts;
    case SWY_OP_ROUTER_TOPK:
      return naive::router_topk;
    case SWY_OP_GATED_DELTA:
      return naive::gated_delta;
    case SWY_OP_CAUSAL_CONV:
      return naive::causal_conv;
    case SWY_OP_DELTA_GATES:
      return naive::delta_gates;
    case SWY_OP_DELTA_RULE:
      return naive::delta_rule;
    case SWY_OP_ATTENTION:
      return naive::attention;
    case SWY_OP_KV_APPEND:
      return naive::kv_append;
    case SWY_OP_ATTEND:
      return naive::attend;
    case SWY_OP_ROPE:
      return naive::rope;
    case SWY_OP_HEAD_SPLIT:
      return naive::head_split;
    case SWY_OP_LM_HEAD:
      return naive::lm_head;
    case SWY_OP_GATHER_ROWS:
      return naive::gather_rows;
    case SWY_OP_CAST:
      return naive::cast;
    case SWY_OP_SAMPLE:
      return naive::sample;
    case SWY_OP_TOP_CANDIDATES:
      return naive::top_candidates;
    default:
      return nullptr;
  }
}

Outcome run_naive(const Case& c) {
  const Naive f = naive_of(c.op);
  if (f == nullptr) throw Failure(text("the kit has no naive implementation of operation ", c.op));
  Outcome o = blank_outcome(c);
  for (size_t s = 0; s < c.steps.size(); ++s) f(c, c.steps[s], o, o.outputs[s]);
  return o;
}

}  // namespace switchyard::check
