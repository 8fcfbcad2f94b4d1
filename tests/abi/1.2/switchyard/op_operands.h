// SPDX-License-Identifier: Apache-2.0
/* The fields of attributes and the operands to which the entries of the op table (op_table.h) refer: an array for each
 * operation, where several do not share one. C11, self-contained. */
#ifndef SWITCHYARD_OP_OPERANDS_H_
#define SWITCHYARD_OP_OPERANDS_H_

#include <stddef.h>

#include "switchyard/op_spec.h"

#ifdef __cplusplus
extern "C" {
#define SWY_TABLE static constexpr
#else
#define SWY_TABLE static const
#endif

/* ---- attributes ------------------------------------------------------------------------------------------------- */

#define SWY_U32(type, field, least, most, multiple_of, divides) \
  { #field, offsetof(type, field), SWY_ATTR_U32, least, 0, most, multiple_of, divides }
#define SWY_COUNT(type, field) SWY_U32(type, field, 1, "1048576", 0, 0) /* 2^20: no product of 3 overflows */
#define SWY_FLAG(type, field) SWY_U32(type, field, 0, "1", 0, 0)
#define SWY_F32_IS(kind, type, field) \
  { #field, offsetof(type, field), SWY_ATTR_##kind, 0, 0, 0, 0, 0 }

SWY_TABLE swy_attr_spec swy_rms_norm_fields[] = {
    SWY_F32_IS(EPSILON, swy_rms_norm_attrs, eps),
    SWY_F32_IS(FINITE, swy_rms_norm_attrs, weight_bias),
};

SWY_TABLE swy_attr_spec swy_attention_fields[] = {
    SWY_COUNT(swy_attention_attrs, heads),
    SWY_U32(swy_attention_attrs, kv_heads, 1, "1048576", 0, "heads"),
    SWY_COUNT(swy_attention_attrs, head_dim),
    SWY_U32(swy_attention_attrs, rotary_dim, 0, "head_dim", "2", 0),
    SWY_F32_IS(POSITIVE, swy_attention_attrs, rope_theta),
    SWY_F32_IS(POSITIVE, swy_attention_attrs, scale),
    SWY_F32_IS(EPSILON, swy_attention_attrs, norm_eps),
    SWY_F32_IS(FINITE, swy_attention_attrs, norm_weight_bias),
    SWY_FLAG(swy_attention_attrs, gated),
};

SWY_TABLE swy_attr_spec swy_attention_2_fields[] = {
    SWY_COUNT(swy_attention_attrs, heads),
    SWY_U32(swy_attention_attrs, kv_heads, 1, "1048576", 0, "heads"),
    SWY_COUNT(swy_attention_attrs, head_dim),
    SWY_U32(swy_attention_attrs, rotary_dim, 0, "head_dim", "2", 0),
    SWY_F32_IS(POSITIVE, swy_attention_attrs, scale),
    SWY_F32_IS(EPSILON, swy_attention_attrs, norm_eps),
    SWY_F32_IS(FINITE, swy_attention_attrs, norm_weight_bias),
    SWY_FLAG(swy_attention_attrs, gated),
    SWY_FLAG(swy_attention_attrs, qk_norm),
    SWY_FLAG(swy_attention_attrs, sinks),
    SWY_U32(swy_attention_attrs, window, 0, "4294967295", 0, 0),
    SWY_F32_IS(POSITIVE, swy_attention_attrs, rope_scale),
};

SWY_TABLE swy_attr_spec swy_gated_delta_fields[] = {
    SWY_COUNT(swy_gated_delta_attrs, key_heads),
    SWY_U32(swy_gated_delta_attrs, value_heads, 1, "1048576", "key_heads", 0),
    SWY_COUNT(swy_gated_delta_attrs, key_dim),
    SWY_COUNT(swy_gated_delta_attrs, value_dim),
    SWY_U32(swy_gated_delta_attrs, conv_kernel, 2, "1048576", 0, 0),
    SWY_F32_IS(EPSILON, swy_gated_delta_attrs, norm_eps),
    SWY_F32_IS(EPSILON, swy_gated_delta_attrs, l2_eps),
};

SWY_TABLE swy_attr_spec swy_moe_fields[] = {
    SWY_COUNT(swy_moe_attrs, experts),
    SWY_U32(swy_moe_attrs, top_k, 1, "experts", 0, 0),
    SWY_COUNT(swy_moe_attrs, width),
    SWY_U32(swy_moe_attrs, shared_width, 0, "1048576", 0, 0),
};

#define SWY_ACTIVATION(type) \
  SWY_U32(type, activation, 0, "1", 0, 0), SWY_F32_IS(FINITE, type, act_alpha), SWY_F32_IS(FINITE, type, act_limit)
SWY_TABLE swy_attr_spec swy_moe_2_fields[] = {
    SWY_COUNT(swy_moe_attrs, experts),
    SWY_U32(swy_moe_attrs, expert_groups, 1, "experts", 0, "experts"),
    SWY_U32(swy_moe_attrs, top_groups, 1, "expert_groups", 0, 0),
    SWY_U32(swy_moe_attrs, top_k, 1, "experts / expert_groups * top_groups", 0, 0),
    SWY_COUNT(swy_moe_attrs, width),
    SWY_U32(swy_moe_attrs, shared_width, 0, "1048576", 0, 0),
    SWY_U32(swy_moe_attrs, router, 0, "2", 0, 0),
    SWY_FLAG(swy_moe_attrs, normalize),
    SWY_F32_IS(POSITIVE, swy_moe_attrs, routed_scale),
    SWY_FLAG(swy_moe_attrs, router_bias),
    SWY_FLAG(swy_moe_attrs, correction_bias),
    SWY_FLAG(swy_moe_attrs, expert_bias),
    SWY_ACTIVATION(swy_moe_attrs),
};
SWY_TABLE swy_attr_spec swy_mlp_fields[] = {SWY_COUNT(swy_mlp_attrs, width), SWY_ACTIVATION(swy_mlp_attrs)};
SWY_TABLE swy_attr_spec swy_activation_fields[] = {SWY_ACTIVATION(swy_activation_attrs)};

SWY_TABLE swy_attr_spec swy_top_candidates_fields[] = {SWY_COUNT(swy_top_candidates_attrs, k)};

/* The fields of swy_heads_attrs that an operation reads differ. */
#define SWY_HEADS SWY_COUNT(swy_heads_attrs, heads), SWY_COUNT(swy_heads_attrs, head_dim)
SWY_TABLE swy_attr_spec swy_heads_fields[] = {SWY_HEADS};
SWY_TABLE swy_attr_spec swy_head_rms_norm_fields[] = {SWY_HEADS, SWY_F32_IS(EPSILON, swy_heads_attrs, eps),
                                                      SWY_F32_IS(FINITE, swy_heads_attrs, weight_bias)};
SWY_TABLE swy_attr_spec swy_rope_fields[] = {SWY_HEADS, SWY_U32(swy_heads_attrs, rotary_dim, 0, "head_dim", "2", 0),
                                             SWY_F32_IS(POSITIVE, swy_heads_attrs, rope_theta)};
SWY_TABLE swy_attr_spec swy_rope_2_fields[] = {SWY_HEADS, SWY_U32(swy_heads_attrs, rotary_dim, 2, "head_dim", "2", 0),
                                               SWY_F32_IS(POSITIVE, swy_heads_attrs, rope_scale)};
SWY_TABLE swy_attr_spec swy_gated_rms_norm_fields[] = {SWY_HEADS, SWY_F32_IS(EPSILON, swy_heads_attrs, eps)};

/* ---- operands --------------------------------------------------------------------------------------------------- */

#define SWY_TYPES_F32 SWY_DTYPE_BIT(SWY_F32)
#define SWY_TYPES_I32 SWY_DTYPE_BIT(SWY_I32)
#define SWY_TYPES_FLOAT (SWY_DTYPE_BIT(SWY_F32) | SWY_DTYPE_BIT(SWY_BF16))
/* Of matrices: every encoding that a host makes. */
#define SWY_TYPES_MATRIX                                                                      \
  (SWY_TYPES_FLOAT | SWY_DTYPE_BIT(SWY_I8) | SWY_DTYPE_BIT(SWY_I4) | SWY_DTYPE_BIT(SWY_I4A) | \
   SWY_DTYPE_BIT(SWY_MXFP4) | SWY_DTYPE_BIT(SWY_ENCODED))

#define SWY_OPERAND(list, when, name, types, shape) \
  { name, shape, SWY_REF_##list, types, when, 1, SWY_STATE_NONE, 0 }
#define SWY_IN(name, types, shape) SWY_OPERAND(INPUT, SWY_ALWAYS, name, SWY_TYPES_##types, shape)
#define SWY_OUT(name, types, shape) SWY_OPERAND(OUTPUT, SWY_ALWAYS, name, SWY_TYPES_##types, shape)
#define SWY_PLAIN(name, shape) SWY_OPERAND(WEIGHT, SWY_ALWAYS, name, SWY_TYPES_FLOAT, shape)
#define SWY_MATRIX(name, shape) SWY_OPERAND(WEIGHT, SWY_ALWAYS, name, SWY_TYPES_MATRIX, shape)
#define SWY_MATRIX_IF(type, field, name, shape) \
  SWY_OPERAND(WEIGHT, offsetof(type, field), name, SWY_TYPES_MATRIX, shape)
#define SWY_PLAIN_IF(type, field, name, types, shape) \
  SWY_OPERAND(WEIGHT, offsetof(type, field), name, SWY_TYPES_##types, shape)
#define SWY_KEPT(kind, name, types, shape) \
  { name, shape, SWY_REF_STATE, SWY_TYPES_##types, SWY_ALWAYS, 1, SWY_STATE_##kind, 0 }

/* Operands that several operations have. */
#define SWY_PROJECTIONS                                                                           \
  {"y", "out[i]", SWY_REF_OUTPUT, SWY_TYPES_FLOAT, SWY_ALWAYS, SWY_LINEAR_MAX_WEIGHTS, 0, 0}, {   \
    "w", "out[i], in", SWY_REF_WEIGHT, SWY_TYPES_MATRIX, SWY_ALWAYS, SWY_LINEAR_MAX_WEIGHTS, 0, 0 \
  }
#define SWY_BIASES \
  { "bias", "out[i]", SWY_REF_WEIGHT, SWY_TYPES_FLOAT, SWY_ALWAYS, SWY_LINEAR_MAX_WEIGHTS, 0, 0 }
#define SWY_EXPERT_WEIGHTS \
  SWY_MATRIX("gate_up", "experts, 2*width, hidden"), SWY_MATRIX("down", "experts, hidden, width")
#define SWY_MOE_WEIGHTS                                                                       \
  SWY_MATRIX("router", "experts, hidden"), SWY_EXPERT_WEIGHTS,                                \
      SWY_MATRIX_IF(swy_moe_attrs, shared_width, "shared_gate_proj", "shared_width, hidden"), \
      SWY_MATRIX_IF(swy_moe_attrs, shared_width, "shared_up_proj", "shared_width, hidden"),   \
      SWY_MATRIX_IF(swy_moe_attrs, shared_width, "shared_down_proj", "hidden, shared_width"), \
      SWY_MATRIX_IF(swy_moe_attrs, shared_width, "shared_gate", "1, hidden")
#define SWY_CORRECTION_BIAS SWY_PLAIN_IF(swy_moe_attrs, correction_bias, "correction_bias", FLOAT, "experts")
#define SWY_EXPERT_BIASES                                                              \
  SWY_PLAIN_IF(swy_moe_attrs, expert_bias, "gate_up_bias", FLOAT, "experts, 2*width"), \
      SWY_PLAIN_IF(swy_moe_attrs, expert_bias, "down_bias", FLOAT, "experts, hidden")
#define SWY_MOE_BIASES \
  SWY_PLAIN_IF(swy_moe_attrs, router_bias, "router_bias", FLOAT, "experts"), SWY_CORRECTION_BIAS, SWY_EXPERT_BIASES
#define SWY_MLP_WEIGHTS \
  SWY_MATRIX("gate", "width, hidden"), SWY_MATRIX("up", "width, hidden"), SWY_MATRIX("down", "out, width")
#define SWY_SINKS SWY_PLAIN_IF(swy_attention_attrs, sinks, "sinks", FLOAT, "heads")
#define SWY_KV_STATE(only_read) \
  { "kv", "2, kv_heads, head_dim", SWY_REF_STATE, SWY_TYPES_FLOAT, SWY_ALWAYS, 1, SWY_STATE_PAGED, only_read }
#define SWY_CONV_STATE \
  SWY_KEPT(SLOTTED, "conv_state", FLOAT, "2*key_heads*key_dim + value_heads*value_dim, conv_kernel - 1")
#define SWY_DELTA_STATE SWY_KEPT(SLOTTED, "delta_state", F32, "value_heads, key_dim, value_dim")
#define SWY_CONV_WEIGHT SWY_PLAIN("conv", "2*key_heads*key_dim + value_heads*value_dim, conv_kernel")
#define SWY_GATE_WEIGHTS SWY_PLAIN("a_log", "value_heads"), SWY_PLAIN("dt_bias", "value_heads")
#define SWY_COUNTS(only_read) \
  { "counts", "vocab", SWY_REF_STATE, SWY_TYPES_I32, SWY_GIVEN, 1, SWY_STATE_SLOTTED, only_read }
#define SWY_SAMPLE_RESULTS                                                                                           \
  SWY_COUNTS(0), SWY_OUT("result", I32, "4"), SWY_OPERAND(OUTPUT, SWY_GIVEN, "likely_ids", SWY_TYPES_I32, "likely"), \
      SWY_OPERAND(OUTPUT, SWY_GIVEN, "likely_logprobs", SWY_TYPES_F32, "likely")

/* composites */
SWY_TABLE swy_operand_spec swy_embedding_operands[] = {SWY_OUT("y", FLOAT, "hidden"),
                                                       SWY_MATRIX("table", "vocab, hidden")};
SWY_TABLE swy_operand_spec swy_rms_norm_operands[] = {SWY_IN("x", FLOAT, "width"), SWY_PLAIN("w", "width"),
                                                      SWY_OUT("y", FLOAT, "width")};
SWY_TABLE swy_operand_spec swy_linear_operands[] = {SWY_IN("x", FLOAT, "in"), SWY_PROJECTIONS};
SWY_TABLE swy_operand_spec swy_linear_2_operands[] = {SWY_IN("x", FLOAT, "in"), SWY_PROJECTIONS, SWY_BIASES};
SWY_TABLE swy_operand_spec swy_attention_operands[] = {
    SWY_IN("q", FLOAT, "heads*head_dim*(1 + gated)"),
    SWY_IN("k", FLOAT, "kv_heads*head_dim"),
    SWY_IN("v", FLOAT, "kv_heads*head_dim"),
    SWY_PLAIN("q_norm", "head_dim"),
    SWY_PLAIN("k_norm", "head_dim"),
    SWY_KV_STATE(0),
    SWY_OUT("y", FLOAT, "heads*head_dim"),
};
SWY_TABLE swy_operand_spec swy_attention_2_operands[] = {
    SWY_IN("q", FLOAT, "heads*head_dim*(1 + gated)"),
    SWY_IN("k", FLOAT, "kv_heads*head_dim"),
    SWY_IN("v", FLOAT, "kv_heads*head_dim"),
    SWY_PLAIN_IF(swy_attention_attrs, qk_norm, "q_norm", FLOAT, "head_dim"),
    SWY_PLAIN_IF(swy_attention_attrs, qk_norm, "k_norm", FLOAT, "head_dim"),
    SWY_PLAIN_IF(swy_attention_attrs, rotary_dim, "inv_freq", F32, "rotary_dim / 2"),
    SWY_SINKS,
    SWY_KV_STATE(0),
    SWY_OUT("y", FLOAT, "heads*head_dim"),
};
SWY_TABLE swy_operand_spec swy_gated_delta_operands[] = {
    SWY_IN("qkv", FLOAT, "2*key_heads*key_dim + value_heads*value_dim"),
    SWY_IN("z", FLOAT, "value_heads*value_dim"),
    SWY_IN("b", FLOAT, "value_heads"),
    SWY_IN("a", FLOAT, "value_heads"),
    SWY_CONV_WEIGHT,
    SWY_GATE_WEIGHTS,
    SWY_PLAIN("norm", "value_dim"),
    SWY_CONV_STATE,
    SWY_DELTA_STATE,
    SWY_OUT("y", FLOAT, "value_heads*value_dim"),
};
SWY_TABLE swy_operand_spec swy_moe_operands[] = {
    SWY_IN("x", FLOAT, "hidden"),
    SWY_OPERAND(INPUT, SWY_GIVEN, "expert_ids", SWY_TYPES_I32, "top_k"),
    SWY_OPERAND(INPUT, SWY_GIVEN, "expert_weights", SWY_TYPES_F32, "top_k"),
    SWY_MOE_WEIGHTS,
    SWY_OUT("y", FLOAT, "hidden"),
};
SWY_TABLE swy_operand_spec swy_moe_2_operands[] = {
    SWY_IN("x", FLOAT, "hidden"),
    SWY_OPERAND(INPUT, SWY_GIVEN, "expert_ids", SWY_TYPES_I32, "top_k"),
    SWY_OPERAND(INPUT, SWY_GIVEN, "expert_weights", SWY_TYPES_F32, "top_k"),
    SWY_MOE_WEIGHTS,
    SWY_MOE_BIASES,
    SWY_OUT("y", FLOAT, "hidden"),
};
SWY_TABLE swy_operand_spec swy_mlp_operands[] = {SWY_IN("x", FLOAT, "hidden"), SWY_OUT("y", FLOAT, "out"),
                                                 SWY_MLP_WEIGHTS};
SWY_TABLE swy_operand_spec swy_add_operands[] = {SWY_IN("x", FLOAT, "width"), SWY_IN("residual", FLOAT, "width"),
                                                 SWY_OUT("y", FLOAT, "width")};
SWY_TABLE swy_operand_spec swy_lm_head_operands[] = {SWY_IN("x", FLOAT, "hidden"), SWY_OUT("logits", F32, "vocab"),
                                                     SWY_MATRIX("w", "vocab, hidden")};
SWY_TABLE swy_operand_spec swy_sample_operands[] = {SWY_IN("logits", F32, "vocab"), SWY_SAMPLE_RESULTS};
SWY_TABLE swy_operand_spec swy_top_candidates_operands[] = {SWY_IN("logits", F32, "vocab"), SWY_COUNTS(1),
                                                            SWY_OUT("ids", I32, "k"), SWY_OUT("best", F32, "k"),
                                                            SWY_OUT("result", I32, "8")};

/* fused composites */
SWY_TABLE swy_operand_spec swy_add_rms_norm_operands[] = {SWY_IN("x", FLOAT, "width"),
                                                          SWY_IN("residual", FLOAT, "width"), SWY_PLAIN("w", "width"),
                                                          SWY_OUT("sum", FLOAT, "width"), SWY_OUT("y", FLOAT, "width")};
SWY_TABLE swy_operand_spec swy_rms_norm_linear_operands[] = {SWY_IN("x", FLOAT, "in"), SWY_PLAIN("norm", "in"),
                                                             SWY_PROJECTIONS};
SWY_TABLE swy_operand_spec swy_rms_norm_linear_2_operands[] = {SWY_IN("x", FLOAT, "in"), SWY_PLAIN("norm", "in"),
                                                               SWY_PROJECTIONS, SWY_BIASES};
SWY_TABLE swy_operand_spec swy_linear_add_operands[] = {SWY_IN("x", FLOAT, "in"), SWY_OUT("y", FLOAT, "out"),
                                                        SWY_IN("residual", FLOAT, "out"), SWY_MATRIX("w", "out, in")};
SWY_TABLE swy_operand_spec swy_linear_add_2_operands[] = {SWY_IN("x", FLOAT, "in"), SWY_OUT("y", FLOAT, "out"),
                                                          SWY_IN("residual", FLOAT, "out"), SWY_MATRIX("w", "out, in"),
                                                          SWY_PLAIN("bias", "out")};
SWY_TABLE swy_operand_spec swy_moe_add_operands[] = {SWY_IN("x", FLOAT, "hidden"), SWY_IN("residual", FLOAT, "hidden"),
                                                     SWY_MOE_WEIGHTS, SWY_OUT("y", FLOAT, "hidden")};
SWY_TABLE swy_operand_spec swy_moe_add_2_operands[] = {SWY_IN("x", FLOAT, "hidden"),
                                                       SWY_IN("residual", FLOAT, "hidden"), SWY_MOE_WEIGHTS,
                                                       SWY_MOE_BIASES, SWY_OUT("y", FLOAT, "hidden")};
SWY_TABLE swy_operand_spec swy_mlp_add_operands[] = {SWY_IN("x", FLOAT, "hidden"), SWY_OUT("y", FLOAT, "out"),
                                                     SWY_IN("residual", FLOAT, "out"), SWY_MLP_WEIGHTS};
SWY_TABLE swy_operand_spec swy_lm_head_sample_operands[] = {SWY_IN("x", FLOAT, "hidden"),
                                                            SWY_MATRIX("w", "vocab, hidden"), SWY_SAMPLE_RESULTS};

/* primitives */
SWY_TABLE swy_operand_spec swy_map_operands[] = {SWY_IN("x", FLOAT, "width"), SWY_OUT("y", FLOAT, "width")};
SWY_TABLE swy_operand_spec swy_head_split_operands[] = {SWY_IN("x", FLOAT, "2*heads*head_dim"),
                                                        SWY_OUT("first", FLOAT, "heads*head_dim"),
                                                        SWY_OUT("second", FLOAT, "heads*head_dim")};
SWY_TABLE swy_operand_spec swy_head_rms_norm_operands[] = {
    SWY_IN("x", FLOAT, "heads*head_dim"), SWY_PLAIN("w", "head_dim"), SWY_OUT("y", FLOAT, "heads*head_dim")};
SWY_TABLE swy_operand_spec swy_rope_operands[] = {SWY_IN("x", FLOAT, "heads*head_dim"),
                                                  SWY_OUT("y", FLOAT, "heads*head_dim")};
SWY_TABLE swy_operand_spec swy_rope_2_operands[] = {
    SWY_IN("x", FLOAT, "heads*head_dim"),
    SWY_OPERAND(WEIGHT, SWY_ALWAYS, "inv_freq", SWY_TYPES_F32, "rotary_dim / 2"),
    SWY_OUT("y", FLOAT, "heads*head_dim"),
};
SWY_TABLE swy_operand_spec swy_kv_append_operands[] = {SWY_IN("k", FLOAT, "kv_heads*head_dim"),
                                                       SWY_IN("v", FLOAT, "kv_heads*head_dim"), SWY_KV_STATE(0)};
SWY_TABLE swy_operand_spec swy_attend_operands[] = {SWY_IN("q", FLOAT, "heads*head_dim"), SWY_KV_STATE(1),
                                                    SWY_OUT("y", FLOAT, "heads*head_dim")};
SWY_TABLE swy_operand_spec swy_attend_2_operands[] = {SWY_IN("q", FLOAT, "heads*head_dim"), SWY_SINKS, SWY_KV_STATE(1),
                                                      SWY_OUT("y", FLOAT, "heads*head_dim")};
SWY_TABLE swy_operand_spec swy_sigmoid_mul_operands[] = {SWY_IN("x", FLOAT, "width"), SWY_IN("gate", FLOAT, "width"),
                                                         SWY_OUT("y", FLOAT, "width")};
SWY_TABLE swy_operand_spec swy_causal_conv_operands[] = {
    SWY_IN("x", FLOAT, "2*key_heads*key_dim + value_heads*value_dim"), SWY_CONV_WEIGHT, SWY_CONV_STATE,
    SWY_OUT("y", FLOAT, "2*key_heads*key_dim + value_heads*value_dim")};
SWY_TABLE swy_operand_spec swy_delta_gates_operands[] = {
    SWY_IN("b", FLOAT, "value_heads"), SWY_IN("a", FLOAT, "value_heads"), SWY_GATE_WEIGHTS,
    SWY_OUT("beta", F32, "value_heads"), SWY_OUT("g", F32, "value_heads")};
SWY_TABLE swy_operand_spec swy_delta_rule_operands[] = {
    SWY_IN("qkv", FLOAT, "2*key_heads*key_dim + value_heads*value_dim"), SWY_IN("beta", F32, "value_heads"),
    SWY_IN("g", F32, "value_heads"), SWY_DELTA_STATE, SWY_OUT("y", FLOAT, "value_heads*value_dim")};
SWY_TABLE swy_operand_spec swy_gated_rms_norm_operands[] = {
    SWY_IN("x", FLOAT, "heads*head_dim"), SWY_IN("z", FLOAT, "heads*head_dim"), SWY_PLAIN("w", "head_dim"),
    SWY_OUT("y", FLOAT, "heads*head_dim")};
SWY_TABLE swy_operand_spec swy_router_topk_operands[] = {
    SWY_IN("logits", FLOAT, "experts"), SWY_OUT("expert_ids", I32, "top_k"), SWY_OUT("expert_weights", F32, "top_k")};
SWY_TABLE swy_operand_spec swy_router_topk_2_operands[] = {SWY_IN("logits", FLOAT, "experts"), SWY_CORRECTION_BIAS,
                                                           SWY_OUT("expert_ids", I32, "top_k"),
                                                           SWY_OUT("expert_weights", F32, "top_k")};
SWY_TABLE swy_operand_spec swy_experts_operands[] = {SWY_IN("x", FLOAT, "hidden"), SWY_IN("expert_ids", I32, "top_k"),
                                                     SWY_IN("expert_weights", F32, "top_k"), SWY_EXPERT_WEIGHTS,
                                                     SWY_OUT("y", FLOAT, "hidden")};
SWY_TABLE swy_operand_spec swy_experts_2_operands[] = {SWY_IN("x", FLOAT, "hidden"),
                                                       SWY_IN("expert_ids", I32, "top_k"),
                                                       SWY_IN("expert_weights", F32, "top_k"),
                                                       SWY_EXPERT_WEIGHTS,
                                                       SWY_EXPERT_BIASES,
                                                       SWY_OUT("y", FLOAT, "hidden")};
SWY_TABLE swy_operand_spec swy_silu_mul_operands[] = {SWY_IN("gate", FLOAT, "width"), SWY_IN("up", FLOAT, "width"),
                                                      SWY_OUT("y", FLOAT, "width")};
SWY_TABLE swy_operand_spec swy_sigmoid_scale_add_operands[] = {
    SWY_IN("routed", FLOAT, "width"), SWY_IN("shared", FLOAT, "width"), SWY_IN("gate", FLOAT, "1"),
    SWY_OUT("y", FLOAT, "width")};

#undef SWY_TABLE
#undef SWY_U32
#undef SWY_COUNT
#undef SWY_FLAG
#undef SWY_F32_IS
#undef SWY_HEADS
#undef SWY_ACTIVATION
#undef SWY_TYPES_F32
#undef SWY_TYPES_I32
#undef SWY_TYPES_FLOAT
#undef SWY_TYPES_MATRIX
#undef SWY_OPERAND
#undef SWY_IN
#undef SWY_OUT
#undef SWY_PLAIN
#undef SWY_MATRIX
#undef SWY_MATRIX_IF
#undef SWY_PLAIN_IF
#undef SWY_KEPT
#undef SWY_PROJECTIONS
#undef SWY_BIASES
#undef SWY_EXPERT_WEIGHTS
#undef SWY_MOE_WEIGHTS
#undef SWY_CORRECTION_BIAS
#undef SWY_EXPERT_BIASES
#undef SWY_MOE_BIASES
#undef SWY_MLP_WEIGHTS
#undef SWY_SINKS
#undef SWY_KV_STATE
#undef SWY_CONV_STATE
#undef SWY_DELTA_STATE
#undef SWY_CONV_WEIGHT
#undef SWY_GATE_WEIGHTS
#undef SWY_COUNTS
#undef SWY_SAMPLE_RESULTS

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* SWITCHYARD_OP_OPERANDS_H_ */
