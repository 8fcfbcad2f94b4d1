// SPDX-License-Identifier: Apache-2.0
/* What ops.h says of each operation, as constant data: names, attributes and their ranges, operands by name with types
 * and shapes, and which pairs fuse. Verifiers, planners, backends and tools read it; nothing of it crosses the ABI.
 * C11, self-contained.
 *
 * One entry is one operation at one revision. Entries are sorted by id, then by revision. A later revision keeps the
 * operands of the one before it in their order, and adds its own to the ends of the lists.
 *
 * Shapes are lists of expressions of numbers, names, + - * and parentheses: "experts, 2*width, hidden". A name is a
 * field of the attributes, or free: a free name is bound by the first operand that has it as a whole dimension, and all
 * others must agree. Operands are read in the order of the entry. An activation's shape is its width. Of a repeated
 * operand, "out[i]" is another name for each repetition.
 */
#ifndef SWITCHYARD_OP_TABLE_H_
#define SWITCHYARD_OP_TABLE_H_

#include <string.h>

#include "switchyard/ops.h"

#ifdef __cplusplus
extern "C" {
#define SWY_TABLE static constexpr
#else
#define SWY_TABLE static const
#endif

/* An operand's list and its place there. A decomposition has temporaries besides. */
typedef uint32_t swy_ref;
enum { SWY_REF_INPUT = 0, SWY_REF_WEIGHT = 1, SWY_REF_STATE = 2, SWY_REF_OUTPUT = 3, SWY_REF_TEMP = 4 };
#define SWY_REF(kind, index) (((uint32_t)(kind) << 16) | (uint32_t)(index))
#define SWY_REF_KIND(ref) ((ref) >> 16)
#define SWY_REF_INDEX(ref) ((ref)&0xffffu)
#define SWY_REF_NONE 0xffffffffu

/* ---- what an entry says ----------------------------------------------------------------------------------------- */

/* The values that a field may have. */
enum {
  SWY_ATTR_U32 = 0,      /* least to most; a multiple of `multiple_of`; a divisor of `divides` */
  SWY_ATTR_FINITE = 1,   /* f32, finite */
  SWY_ATTR_POSITIVE = 2, /* f32, finite, above 0 */
  SWY_ATTR_EPSILON = 3,  /* f32, at least 0 and below 1 */
};

/* A field of the attribute struct that the operation reads. */
typedef struct swy_attr_spec {
  const char* name;
  uint32_t offset;
  uint32_t kind; /* SWY_ATTR_* */
  uint32_t least;
  uint32_t reserved;
  const char* most;        /* this and the next two are expressions over fields; SWY_ATTR_U32 needs `most` */
  const char* multiple_of; /* NULL: of anything */
  const char* divides;     /* NULL: need not divide anything */
} swy_attr_spec;

/* Whether an operand is there: where this field (its offset) of the attributes is not 0, or as follows. An operand that
 * is absent takes no place in its list. */
enum {
  SWY_ALWAYS = 0,
  SWY_GIVEN = 1, /* optional: such operands end their list, and all of them are there or none */
};

typedef struct swy_operand_spec {
  const char* name; /* unique in the operation */
  const char* shape;
  uint32_t list;   /* SWY_REF_INPUT, _WEIGHT, _STATE or _OUTPUT */
  uint32_t dtypes; /* bits */
  uint32_t when;
  uint32_t most; /* 1. More: it is repeated, as often as the operation has outputs, one after the other in its list */
  swy_state_kind state;
  uint32_t only_read; /* states: the operation does not write it */
} swy_operand_spec;

enum { SWY_ROWS_SAME = 3 }; /* of swy_op_spec: any rows, and all operands' alike */

typedef struct swy_op_spec {
  swy_op_id id;
  uint32_t revision;
  const char* name; /* as in SWY_OP_*, in lower case */
  uint32_t attrs_size;
  uint32_t attr_count;
  const swy_attr_spec* attrs;
  uint32_t operand_count;
  uint32_t in_files; /* a program may have it: 0 for operations that sample, which the runtime adds */
  const swy_operand_spec* operands;
  swy_rows rows_in, rows_out; /* of inputs and outputs */
  /* A fused composite: the operation and the one that reads its output, each at the highest revision up to this one.
   * Its operands are theirs in this order, less the value between, which stays the first output if `keeps` is 1. */
  swy_op_id first, second;
  uint32_t keeps;
  uint32_t reserved;
  const char* summary; /* for people, with fields in braces; "" for none */
} swy_op_spec;

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

SWY_TABLE swy_attr_spec swy_top_candidates_fields[] = {SWY_COUNT(swy_top_candidates_attrs, k)};

/* The fields of swy_heads_attrs that an operation reads differ. */
#define SWY_HEADS SWY_COUNT(swy_heads_attrs, heads), SWY_COUNT(swy_heads_attrs, head_dim)
SWY_TABLE swy_attr_spec swy_heads_fields[] = {SWY_HEADS};
SWY_TABLE swy_attr_spec swy_head_rms_norm_fields[] = {SWY_HEADS, SWY_F32_IS(EPSILON, swy_heads_attrs, eps),
                                                      SWY_F32_IS(FINITE, swy_heads_attrs, weight_bias)};
SWY_TABLE swy_attr_spec swy_rope_fields[] = {SWY_HEADS, SWY_U32(swy_heads_attrs, rotary_dim, 0, "head_dim", "2", 0),
                                             SWY_F32_IS(POSITIVE, swy_heads_attrs, rope_theta)};
SWY_TABLE swy_attr_spec swy_gated_rms_norm_fields[] = {SWY_HEADS, SWY_F32_IS(EPSILON, swy_heads_attrs, eps)};

/* ---- operands --------------------------------------------------------------------------------------------------- */

#define SWY_TYPES_F32 SWY_DTYPE_BIT(SWY_F32)
#define SWY_TYPES_I32 SWY_DTYPE_BIT(SWY_I32)
#define SWY_TYPES_FLOAT (SWY_DTYPE_BIT(SWY_F32) | SWY_DTYPE_BIT(SWY_BF16))
/* Of matrices: every encoding that a host makes. */
#define SWY_TYPES_MATRIX                                                                      \
  (SWY_TYPES_FLOAT | SWY_DTYPE_BIT(SWY_I8) | SWY_DTYPE_BIT(SWY_I4) | SWY_DTYPE_BIT(SWY_I4A) | \
   SWY_DTYPE_BIT(SWY_ENCODED))

#define SWY_OPERAND(list, when, name, types, shape) \
  { name, shape, SWY_REF_##list, types, when, 1, SWY_STATE_NONE, 0 }
#define SWY_IN(name, types, shape) SWY_OPERAND(INPUT, SWY_ALWAYS, name, SWY_TYPES_##types, shape)
#define SWY_OUT(name, types, shape) SWY_OPERAND(OUTPUT, SWY_ALWAYS, name, SWY_TYPES_##types, shape)
#define SWY_PLAIN(name, shape) SWY_OPERAND(WEIGHT, SWY_ALWAYS, name, SWY_TYPES_FLOAT, shape)
#define SWY_MATRIX(name, shape) SWY_OPERAND(WEIGHT, SWY_ALWAYS, name, SWY_TYPES_MATRIX, shape)
#define SWY_MATRIX_IF(type, field, name, shape) \
  SWY_OPERAND(WEIGHT, offsetof(type, field), name, SWY_TYPES_MATRIX, shape)
#define SWY_KEPT(kind, name, types, shape) \
  { name, shape, SWY_REF_STATE, SWY_TYPES_##types, SWY_ALWAYS, 1, SWY_STATE_##kind, 0 }

/* Operands that several operations have. */
#define SWY_PROJECTIONS                                                                           \
  {"y", "out[i]", SWY_REF_OUTPUT, SWY_TYPES_FLOAT, SWY_ALWAYS, SWY_LINEAR_MAX_WEIGHTS, 0, 0}, {   \
    "w", "out[i], in", SWY_REF_WEIGHT, SWY_TYPES_MATRIX, SWY_ALWAYS, SWY_LINEAR_MAX_WEIGHTS, 0, 0 \
  }
#define SWY_EXPERT_WEIGHTS \
  SWY_MATRIX("gate_up", "experts, 2*width, hidden"), SWY_MATRIX("down", "experts, hidden, width")
#define SWY_MOE_WEIGHTS                                                                       \
  SWY_MATRIX("router", "experts, hidden"), SWY_EXPERT_WEIGHTS,                                \
      SWY_MATRIX_IF(swy_moe_attrs, shared_width, "shared_gate_proj", "shared_width, hidden"), \
      SWY_MATRIX_IF(swy_moe_attrs, shared_width, "shared_up_proj", "shared_width, hidden"),   \
      SWY_MATRIX_IF(swy_moe_attrs, shared_width, "shared_down_proj", "hidden, shared_width"), \
      SWY_MATRIX_IF(swy_moe_attrs, shared_width, "shared_gate", "1, hidden")
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
SWY_TABLE swy_operand_spec swy_attention_operands[] = {
    SWY_IN("q", FLOAT, "heads*head_dim*(1 + gated)"),
    SWY_IN("k", FLOAT, "kv_heads*head_dim"),
    SWY_IN("v", FLOAT, "kv_heads*head_dim"),
    SWY_PLAIN("q_norm", "head_dim"),
    SWY_PLAIN("k_norm", "head_dim"),
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
SWY_TABLE swy_operand_spec swy_linear_add_operands[] = {SWY_IN("x", FLOAT, "in"), SWY_OUT("y", FLOAT, "out"),
                                                        SWY_IN("residual", FLOAT, "out"), SWY_MATRIX("w", "out, in")};
SWY_TABLE swy_operand_spec swy_moe_add_operands[] = {SWY_IN("x", FLOAT, "hidden"), SWY_IN("residual", FLOAT, "hidden"),
                                                     SWY_MOE_WEIGHTS, SWY_OUT("y", FLOAT, "hidden")};
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
SWY_TABLE swy_operand_spec swy_kv_append_operands[] = {SWY_IN("k", FLOAT, "kv_heads*head_dim"),
                                                       SWY_IN("v", FLOAT, "kv_heads*head_dim"), SWY_KV_STATE(0)};
SWY_TABLE swy_operand_spec swy_attend_operands[] = {SWY_IN("q", FLOAT, "heads*head_dim"), SWY_KV_STATE(1),
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
SWY_TABLE swy_operand_spec swy_experts_operands[] = {SWY_IN("x", FLOAT, "hidden"), SWY_IN("expert_ids", I32, "top_k"),
                                                     SWY_IN("expert_weights", F32, "top_k"), SWY_EXPERT_WEIGHTS,
                                                     SWY_OUT("y", FLOAT, "hidden")};
SWY_TABLE swy_operand_spec swy_silu_mul_operands[] = {SWY_IN("gate", FLOAT, "width"), SWY_IN("up", FLOAT, "width"),
                                                      SWY_OUT("y", FLOAT, "width")};
SWY_TABLE swy_operand_spec swy_sigmoid_scale_add_operands[] = {
    SWY_IN("routed", FLOAT, "width"), SWY_IN("shared", FLOAT, "width"), SWY_IN("gate", FLOAT, "1"),
    SWY_OUT("y", FLOAT, "width")};

/* ---- the table -------------------------------------------------------------------------------------------------- */

#define SWY_LENGTH(array) (uint32_t)(sizeof(array) / sizeof((array)[0]))
#define SWY_NO_ATTRS 0, 0, 0
#define SWY_ATTRS(type, fields) sizeof(type), SWY_LENGTH(swy_##fields##_fields), swy_##fields##_fields
#define SWY_OPERANDS(name, in_files) SWY_LENGTH(swy_##name##_operands), in_files, swy_##name##_operands
#define SWY_ROWS(in, out) SWY_ROWS_##in, SWY_ROWS_##out
#define SWY_NOT_FUSED 0, 0, 0, 0
#define SWY_FUSED(first, second, keeps) SWY_OP_##first, SWY_OP_##second, keeps, 0
/* attributes, operands, rows, and what is fused, in this order */
#define SWY_ENTRY(op, revision, name, ...) \
  { SWY_OP_##op, revision, name, __VA_ARGS__ }

#define SWY_ATTENTION_TEXT "heads {heads}/{kv_heads} x {head_dim}"
#define SWY_DELTA_TEXT "heads {value_heads}/{key_heads} x {key_dim}x{value_dim}"
#define SWY_MOE_TEXT "{top_k} of {experts} experts x {width}"

SWY_TABLE swy_op_spec swy_op_table[] = {
    SWY_ENTRY(EMBEDDING, 1, "embedding", SWY_NO_ATTRS, SWY_OPERANDS(embedding, 1), SWY_ROWS(STEP, STEP), SWY_NOT_FUSED,
              ""),
    SWY_ENTRY(RMS_NORM, 1, "rms_norm", SWY_ATTRS(swy_rms_norm_attrs, rms_norm), SWY_OPERANDS(rms_norm, 1),
              SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, ""),
    SWY_ENTRY(LINEAR, 1, "linear", SWY_NO_ATTRS, SWY_OPERANDS(linear, 1), SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, ""),
    SWY_ENTRY(ATTENTION, 1, "attention", SWY_ATTRS(swy_attention_attrs, attention), SWY_OPERANDS(attention, 1),
              SWY_ROWS(STEP, STEP), SWY_NOT_FUSED, SWY_ATTENTION_TEXT),
    SWY_ENTRY(GATED_DELTA, 1, "gated_delta", SWY_ATTRS(swy_gated_delta_attrs, gated_delta),
              SWY_OPERANDS(gated_delta, 1), SWY_ROWS(STEP, STEP), SWY_NOT_FUSED, SWY_DELTA_TEXT),
    SWY_ENTRY(MOE, 1, "moe", SWY_ATTRS(swy_moe_attrs, moe), SWY_OPERANDS(moe, 1), SWY_ROWS(SAME, SAME), SWY_NOT_FUSED,
              SWY_MOE_TEXT),
    SWY_ENTRY(ADD, 1, "add", SWY_NO_ATTRS, SWY_OPERANDS(add, 1), SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, ""),
    SWY_ENTRY(LM_HEAD, 1, "lm_head", SWY_NO_ATTRS, SWY_OPERANDS(lm_head, 1), SWY_ROWS(STEP, LOGITS), SWY_NOT_FUSED, ""),
    SWY_ENTRY(SAMPLE, 1, "sample", SWY_NO_ATTRS, SWY_OPERANDS(sample, 0), SWY_ROWS(LOGITS, SAMPLE), SWY_NOT_FUSED, ""),
    SWY_ENTRY(TOP_CANDIDATES, 1, "top_candidates", SWY_ATTRS(swy_top_candidates_attrs, top_candidates),
              SWY_OPERANDS(top_candidates, 0), SWY_ROWS(LOGITS, SAMPLE), SWY_NOT_FUSED, ""),

    SWY_ENTRY(ADD_RMS_NORM, 1, "add_rms_norm", SWY_ATTRS(swy_rms_norm_attrs, rms_norm), SWY_OPERANDS(add_rms_norm, 1),
              SWY_ROWS(SAME, SAME), SWY_FUSED(ADD, RMS_NORM, 1), ""),
    SWY_ENTRY(RMS_NORM_LINEAR, 1, "rms_norm_linear", SWY_ATTRS(swy_rms_norm_attrs, rms_norm),
              SWY_OPERANDS(rms_norm_linear, 1), SWY_ROWS(SAME, SAME), SWY_FUSED(RMS_NORM, LINEAR, 0), ""),
    SWY_ENTRY(LINEAR_ADD, 1, "linear_add", SWY_NO_ATTRS, SWY_OPERANDS(linear_add, 1), SWY_ROWS(SAME, SAME),
              SWY_FUSED(LINEAR, ADD, 0), ""),
    SWY_ENTRY(MOE_ADD, 1, "moe_add", SWY_ATTRS(swy_moe_attrs, moe), SWY_OPERANDS(moe_add, 1), SWY_ROWS(SAME, SAME),
              SWY_FUSED(MOE, ADD, 0), SWY_MOE_TEXT),
    SWY_ENTRY(LM_HEAD_SAMPLE, 1, "lm_head_sample", SWY_NO_ATTRS, SWY_OPERANDS(lm_head_sample, 0),
              SWY_ROWS(STEP, SAMPLE), SWY_FUSED(LM_HEAD, SAMPLE, 0), ""),

    SWY_ENTRY(CAST, 1, "cast", SWY_NO_ATTRS, SWY_OPERANDS(map, 1), SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, ""),
    SWY_ENTRY(GATHER_ROWS, 1, "gather_rows", SWY_NO_ATTRS, SWY_OPERANDS(map, 1), SWY_ROWS(STEP, LOGITS), SWY_NOT_FUSED,
              ""),
    SWY_ENTRY(HEAD_SPLIT, 1, "head_split", SWY_ATTRS(swy_heads_attrs, heads), SWY_OPERANDS(head_split, 1),
              SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, ""),
    SWY_ENTRY(HEAD_RMS_NORM, 1, "head_rms_norm", SWY_ATTRS(swy_heads_attrs, head_rms_norm),
              SWY_OPERANDS(head_rms_norm, 1), SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, ""),
    SWY_ENTRY(ROPE, 1, "rope", SWY_ATTRS(swy_heads_attrs, rope), SWY_OPERANDS(rope, 1), SWY_ROWS(STEP, STEP),
              SWY_NOT_FUSED, ""),
    SWY_ENTRY(KV_APPEND, 1, "kv_append", SWY_ATTRS(swy_attention_attrs, attention), SWY_OPERANDS(kv_append, 1),
              SWY_ROWS(STEP, STEP), SWY_NOT_FUSED, ""),
    SWY_ENTRY(ATTEND, 1, "attend", SWY_ATTRS(swy_attention_attrs, attention), SWY_OPERANDS(attend, 1),
              SWY_ROWS(STEP, STEP), SWY_NOT_FUSED, SWY_ATTENTION_TEXT),
    SWY_ENTRY(SIGMOID_MUL, 1, "sigmoid_mul", SWY_NO_ATTRS, SWY_OPERANDS(sigmoid_mul, 1), SWY_ROWS(SAME, SAME),
              SWY_NOT_FUSED, ""),
    SWY_ENTRY(CAUSAL_CONV, 1, "causal_conv", SWY_ATTRS(swy_gated_delta_attrs, gated_delta),
              SWY_OPERANDS(causal_conv, 1), SWY_ROWS(STEP, STEP), SWY_NOT_FUSED, ""),
    SWY_ENTRY(DELTA_GATES, 1, "delta_gates", SWY_ATTRS(swy_gated_delta_attrs, gated_delta),
              SWY_OPERANDS(delta_gates, 1), SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, ""),
    SWY_ENTRY(DELTA_RULE, 1, "delta_rule", SWY_ATTRS(swy_gated_delta_attrs, gated_delta), SWY_OPERANDS(delta_rule, 1),
              SWY_ROWS(STEP, STEP), SWY_NOT_FUSED, SWY_DELTA_TEXT),
    SWY_ENTRY(GATED_RMS_NORM, 1, "gated_rms_norm", SWY_ATTRS(swy_heads_attrs, gated_rms_norm),
              SWY_OPERANDS(gated_rms_norm, 1), SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, ""),
    SWY_ENTRY(ROUTER_TOPK, 1, "router_topk", SWY_ATTRS(swy_moe_attrs, moe), SWY_OPERANDS(router_topk, 1),
              SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, ""),
    SWY_ENTRY(EXPERTS, 1, "experts", SWY_ATTRS(swy_moe_attrs, moe), SWY_OPERANDS(experts, 1), SWY_ROWS(SAME, SAME),
              SWY_NOT_FUSED, SWY_MOE_TEXT),
    SWY_ENTRY(SILU_MUL, 1, "silu_mul", SWY_NO_ATTRS, SWY_OPERANDS(silu_mul, 1), SWY_ROWS(SAME, SAME), SWY_NOT_FUSED,
              ""),
    SWY_ENTRY(SIGMOID_SCALE_ADD, 1, "sigmoid_scale_add", SWY_NO_ATTRS, SWY_OPERANDS(sigmoid_scale_add, 1),
              SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, ""),
};

enum { SWY_OP_ENTRIES = sizeof(swy_op_table) / sizeof(swy_op_table[0]) };

#undef SWY_TABLE
#undef SWY_U32
#undef SWY_COUNT
#undef SWY_FLAG
#undef SWY_F32_IS
#undef SWY_HEADS
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
#undef SWY_KEPT
#undef SWY_PROJECTIONS
#undef SWY_EXPERT_WEIGHTS
#undef SWY_MOE_WEIGHTS
#undef SWY_KV_STATE
#undef SWY_CONV_STATE
#undef SWY_DELTA_STATE
#undef SWY_CONV_WEIGHT
#undef SWY_GATE_WEIGHTS
#undef SWY_COUNTS
#undef SWY_SAMPLE_RESULTS
#undef SWY_LENGTH
#undef SWY_NO_ATTRS
#undef SWY_ATTRS
#undef SWY_OPERANDS
#undef SWY_ROWS
#undef SWY_NOT_FUSED
#undef SWY_FUSED
#undef SWY_ENTRY
#undef SWY_ATTENTION_TEXT
#undef SWY_DELTA_TEXT
#undef SWY_MOE_TEXT

/* ---- lookup ----------------------------------------------------------------------------------------------------- */

/* The entry of an operation; with revision 0, of its latest revision. NULL: there is none. */
static inline const swy_op_spec* swy_find_op(uint32_t id, uint32_t revision) {
  const swy_op_spec* found = NULL;
  for (uint32_t i = 0; i < SWY_OP_ENTRIES; ++i) {
    const swy_op_spec* spec = &swy_op_table[i];
    if (spec->id > id) break;
    if (spec->id == id && (revision == 0 || spec->revision == revision)) found = spec;
  }
  return found;
}

/* A field of a type of 32 bits. */
static inline uint32_t swy_attr_word(const void* attrs, uint32_t offset) {
  uint32_t word;
  memcpy(&word, (const char*)attrs + offset, sizeof word);
  return word;
}

/* How many places an operand takes of its list in an operation with these attributes, of `size` operands in this list
 * and `outputs` outputs. `place` is the first. */
static inline uint32_t swy_operand_places(const swy_operand_spec* operand, const void* attrs, uint32_t place,
                                          uint32_t size, uint32_t outputs) {
  if (operand->when == SWY_GIVEN) return place < size;
  if (operand->when != SWY_ALWAYS && swy_attr_word(attrs, operand->when) == 0) return 0;
  return operand->most == 1 ? 1 : outputs;
}

/* Where an operand is: SWY_REF(list, place), for a repeated one its first place; SWY_REF_NONE where it is absent or the
 * operation has none of this name. The operation is well formed. */
static inline swy_ref swy_operand(const swy_op* op, const char* name) {
  const swy_op_spec* spec = swy_find_op(op->id, op->revision);
  uint32_t place[4] = {0, 0, 0, 0};
  const uint32_t sizes[4] = {op->input_count, op->weight_count, op->state_count, op->output_count};
  for (uint32_t i = 0; spec != NULL && i < spec->operand_count; ++i) {
    const swy_operand_spec* o = &spec->operands[i];
    const uint32_t places = swy_operand_places(o, op->attrs, place[o->list], sizes[o->list], op->output_count);
    if (strcmp(o->name, name) == 0) return places == 0 ? SWY_REF_NONE : SWY_REF(o->list, place[o->list]);
    place[o->list] += places;
  }
  return SWY_REF_NONE;
}

/* Its description; NULL where it is absent. */
static inline const swy_tensor* swy_operand_tensor(const swy_op* op, const char* name) {
  const swy_ref ref = swy_operand(op, name);
  if (ref == SWY_REF_NONE) return NULL;
  switch (SWY_REF_KIND(ref)) {
    case SWY_REF_INPUT:
      return op->inputs[SWY_REF_INDEX(ref)];
    case SWY_REF_WEIGHT:
      return op->weights[SWY_REF_INDEX(ref)];
    case SWY_REF_STATE:
      return op->states[SWY_REF_INDEX(ref)];
    default:
      return op->outputs[SWY_REF_INDEX(ref)];
  }
}

/* "f32", "bf16", "i4a"; NULL for a number that is no element type. */
static inline const char* swy_dtype_name(swy_dtype dtype) {
  static const char* const names[] = {"f32", "bf16",    "i32",  "i8",      "i4",    "i4a",
                                      "f16", "f8_e4m3", "e8m0", "f8_e5m2", "mxfp4", "nvfp4"};
  if (dtype == SWY_ENCODED) return "encoded";
  return dtype >= SWY_F32 && dtype <= SWY_NVFP4 ? names[dtype - SWY_F32] : NULL;
}

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* SWITCHYARD_OP_TABLE_H_ */
