// SPDX-License-Identifier: Apache-2.0
/* What ops.h says of each operation, as constant data: names, attributes and their ranges, operands by name with types
 * and shapes, and which pairs fuse. Verifiers, planners, backends and tools read it; nothing of it crosses the ABI.
 * C11, self-contained.
 *
 * One entry is one operation at one revision. Entries are sorted by id, then by revision. A later revision keeps the
 * operands of the one before it in their order, and adds its own to the ends of the lists.
 *
 * Shapes are lists of expressions of numbers, names, + - * / and parentheses: "experts, 2*width, hidden". A
 * quotient that leaves a remainder has no value. A name is a field of the attributes, or free: a free name is bound by
 * the first operand that has it as a whole dimension, and all others must agree. Operands are read in the order of the
 * entry. An activation's shape is its width. Of a repeated operand, "out[i]" is another name for each repetition.
 */
#ifndef SWITCHYARD_OP_TABLE_H_
#define SWITCHYARD_OP_TABLE_H_

#include <string.h>

#include "switchyard/op_operands.h"

#ifdef __cplusplus
extern "C" {
#define SWY_TABLE static constexpr
#else
#define SWY_TABLE static const
#endif

/* ---- the table -------------------------------------------------------------------------------------------------- */

#define SWY_LENGTH(array) (uint32_t)(sizeof(array) / sizeof((array)[0]))
#define SWY_NO_ATTRS 0, 0, 0
#define SWY_ATTRS(type, fields) sizeof(type), SWY_LENGTH(swy_##fields##_fields), swy_##fields##_fields
/* Of a revision whose attributes end before this field. */
#define SWY_ATTRS_BEFORE(type, field, fields) \
  offsetof(type, field), SWY_LENGTH(swy_##fields##_fields), swy_##fields##_fields
#define SWY_ATTENTION_1 SWY_ATTRS_BEFORE(swy_attention_attrs, qk_norm, attention)
#define SWY_MOE_1 SWY_ATTRS_BEFORE(swy_moe_attrs, router, moe)
#define SWY_OPERANDS(name, in_files) SWY_LENGTH(swy_##name##_operands), in_files, swy_##name##_operands
#define SWY_ROWS(in, out) SWY_ROWS_##in, SWY_ROWS_##out
#define SWY_NOT_FUSED 0, 0, 0, 0
#define SWY_FUSED(first, second, keeps) SWY_OP_##first, SWY_OP_##second, keeps, 0
/* attributes, operands, rows, and what is fused, in this order */
#define SWY_ENTRY(op, revision, name, ...) \
  { SWY_OP_##op, revision, name, __VA_ARGS__ }

#define SWY_ATTENTION_TEXT "heads {heads}/{kv_heads} x {head_dim}"
#define SWY_ATTENTION_2_TEXT SWY_ATTENTION_TEXT ", window {window}"
#define SWY_DELTA_TEXT "heads {value_heads}/{key_heads} x {key_dim}x{value_dim}"
#define SWY_MOE_TEXT "{top_k} of {experts} experts x {width}"
#define SWY_MLP_TEXT "width {width}"

SWY_TABLE swy_op_spec swy_op_table[] = {
    SWY_ENTRY(EMBEDDING, 1, "embedding", SWY_NO_ATTRS, SWY_OPERANDS(embedding, 1), SWY_ROWS(STEP, STEP), SWY_NOT_FUSED,
              ""),
    SWY_ENTRY(RMS_NORM, 1, "rms_norm", SWY_ATTRS(swy_rms_norm_attrs, rms_norm), SWY_OPERANDS(rms_norm, 1),
              SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, ""),
    SWY_ENTRY(LINEAR, 1, "linear", SWY_NO_ATTRS, SWY_OPERANDS(linear, 1), SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, ""),
    SWY_ENTRY(LINEAR, 2, "linear", SWY_NO_ATTRS, SWY_OPERANDS(linear_2, 1), SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, ""),
    SWY_ENTRY(ATTENTION, 1, "attention", SWY_ATTENTION_1, SWY_OPERANDS(attention, 1), SWY_ROWS(STEP, STEP),
              SWY_NOT_FUSED, SWY_ATTENTION_TEXT),
    SWY_ENTRY(ATTENTION, 2, "attention", SWY_ATTRS(swy_attention_attrs, attention_2), SWY_OPERANDS(attention_2, 1),
              SWY_ROWS(STEP, STEP), SWY_NOT_FUSED, SWY_ATTENTION_2_TEXT),
    SWY_ENTRY(GATED_DELTA, 1, "gated_delta", SWY_ATTRS(swy_gated_delta_attrs, gated_delta),
              SWY_OPERANDS(gated_delta, 1), SWY_ROWS(STEP, STEP), SWY_NOT_FUSED, SWY_DELTA_TEXT),
    SWY_ENTRY(MOE, 1, "moe", SWY_MOE_1, SWY_OPERANDS(moe, 1), SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, SWY_MOE_TEXT),
    SWY_ENTRY(MOE, 2, "moe", SWY_ATTRS(swy_moe_attrs, moe_2), SWY_OPERANDS(moe_2, 1), SWY_ROWS(SAME, SAME),
              SWY_NOT_FUSED, SWY_MOE_TEXT),
    SWY_ENTRY(ADD, 1, "add", SWY_NO_ATTRS, SWY_OPERANDS(add, 1), SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, ""),
    SWY_ENTRY(LM_HEAD, 1, "lm_head", SWY_NO_ATTRS, SWY_OPERANDS(lm_head, 1), SWY_ROWS(STEP, LOGITS), SWY_NOT_FUSED, ""),
    SWY_ENTRY(SAMPLE, 1, "sample", SWY_NO_ATTRS, SWY_OPERANDS(sample, 0), SWY_ROWS(LOGITS, SAMPLE), SWY_NOT_FUSED, ""),
    SWY_ENTRY(TOP_CANDIDATES, 1, "top_candidates", SWY_ATTRS(swy_top_candidates_attrs, top_candidates),
              SWY_OPERANDS(top_candidates, 0), SWY_ROWS(LOGITS, SAMPLE), SWY_NOT_FUSED, ""),
    SWY_ENTRY(MLP, 1, "mlp", SWY_ATTRS(swy_mlp_attrs, mlp), SWY_OPERANDS(mlp, 1), SWY_ROWS(SAME, SAME), SWY_NOT_FUSED,
              SWY_MLP_TEXT),

    SWY_ENTRY(ADD_RMS_NORM, 1, "add_rms_norm", SWY_ATTRS(swy_rms_norm_attrs, rms_norm), SWY_OPERANDS(add_rms_norm, 1),
              SWY_ROWS(SAME, SAME), SWY_FUSED(ADD, RMS_NORM, 1), ""),
    SWY_ENTRY(RMS_NORM_LINEAR, 1, "rms_norm_linear", SWY_ATTRS(swy_rms_norm_attrs, rms_norm),
              SWY_OPERANDS(rms_norm_linear, 1), SWY_ROWS(SAME, SAME), SWY_FUSED(RMS_NORM, LINEAR, 0), ""),
    SWY_ENTRY(RMS_NORM_LINEAR, 2, "rms_norm_linear", SWY_ATTRS(swy_rms_norm_attrs, rms_norm),
              SWY_OPERANDS(rms_norm_linear_2, 1), SWY_ROWS(SAME, SAME), SWY_FUSED(RMS_NORM, LINEAR, 0), ""),
    SWY_ENTRY(LINEAR_ADD, 1, "linear_add", SWY_NO_ATTRS, SWY_OPERANDS(linear_add, 1), SWY_ROWS(SAME, SAME),
              SWY_FUSED(LINEAR, ADD, 0), ""),
    SWY_ENTRY(LINEAR_ADD, 2, "linear_add", SWY_NO_ATTRS, SWY_OPERANDS(linear_add_2, 1), SWY_ROWS(SAME, SAME),
              SWY_FUSED(LINEAR, ADD, 0), ""),
    SWY_ENTRY(MOE_ADD, 1, "moe_add", SWY_MOE_1, SWY_OPERANDS(moe_add, 1), SWY_ROWS(SAME, SAME), SWY_FUSED(MOE, ADD, 0),
              SWY_MOE_TEXT),
    SWY_ENTRY(MOE_ADD, 2, "moe_add", SWY_ATTRS(swy_moe_attrs, moe_2), SWY_OPERANDS(moe_add_2, 1), SWY_ROWS(SAME, SAME),
              SWY_FUSED(MOE, ADD, 0), SWY_MOE_TEXT),
    SWY_ENTRY(LM_HEAD_SAMPLE, 1, "lm_head_sample", SWY_NO_ATTRS, SWY_OPERANDS(lm_head_sample, 0),
              SWY_ROWS(STEP, SAMPLE), SWY_FUSED(LM_HEAD, SAMPLE, 0), ""),
    SWY_ENTRY(MLP_ADD, 1, "mlp_add", SWY_ATTRS(swy_mlp_attrs, mlp), SWY_OPERANDS(mlp_add, 1), SWY_ROWS(SAME, SAME),
              SWY_FUSED(MLP, ADD, 0), SWY_MLP_TEXT),

    SWY_ENTRY(CAST, 1, "cast", SWY_NO_ATTRS, SWY_OPERANDS(map, 1), SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, ""),
    SWY_ENTRY(GATHER_ROWS, 1, "gather_rows", SWY_NO_ATTRS, SWY_OPERANDS(map, 1), SWY_ROWS(STEP, LOGITS), SWY_NOT_FUSED,
              ""),
    SWY_ENTRY(HEAD_SPLIT, 1, "head_split", SWY_ATTRS(swy_heads_attrs, heads), SWY_OPERANDS(head_split, 1),
              SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, ""),
    SWY_ENTRY(HEAD_RMS_NORM, 1, "head_rms_norm", SWY_ATTRS(swy_heads_attrs, head_rms_norm),
              SWY_OPERANDS(head_rms_norm, 1), SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, ""),
    SWY_ENTRY(ROPE, 1, "rope", SWY_ATTRS(swy_heads_attrs, rope), SWY_OPERANDS(rope, 1), SWY_ROWS(STEP, STEP),
              SWY_NOT_FUSED, ""),
    SWY_ENTRY(ROPE, 2, "rope", SWY_ATTRS(swy_heads_attrs, rope_2), SWY_OPERANDS(rope_2, 1), SWY_ROWS(STEP, STEP),
              SWY_NOT_FUSED, ""),
    SWY_ENTRY(KV_APPEND, 1, "kv_append", SWY_ATTENTION_1, SWY_OPERANDS(kv_append, 1), SWY_ROWS(STEP, STEP),
              SWY_NOT_FUSED, ""),
    SWY_ENTRY(ATTEND, 1, "attend", SWY_ATTENTION_1, SWY_OPERANDS(attend, 1), SWY_ROWS(STEP, STEP), SWY_NOT_FUSED,
              SWY_ATTENTION_TEXT),
    SWY_ENTRY(ATTEND, 2, "attend", SWY_ATTRS(swy_attention_attrs, attention_2), SWY_OPERANDS(attend_2, 1),
              SWY_ROWS(STEP, STEP), SWY_NOT_FUSED, SWY_ATTENTION_2_TEXT),
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
    SWY_ENTRY(ROUTER_TOPK, 1, "router_topk", SWY_MOE_1, SWY_OPERANDS(router_topk, 1), SWY_ROWS(SAME, SAME),
              SWY_NOT_FUSED, ""),
    SWY_ENTRY(ROUTER_TOPK, 2, "router_topk", SWY_ATTRS(swy_moe_attrs, moe_2), SWY_OPERANDS(router_topk_2, 1),
              SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, ""),
    SWY_ENTRY(EXPERTS, 1, "experts", SWY_MOE_1, SWY_OPERANDS(experts, 1), SWY_ROWS(SAME, SAME), SWY_NOT_FUSED,
              SWY_MOE_TEXT),
    SWY_ENTRY(EXPERTS, 2, "experts", SWY_ATTRS(swy_moe_attrs, moe_2), SWY_OPERANDS(experts_2, 1), SWY_ROWS(SAME, SAME),
              SWY_NOT_FUSED, SWY_MOE_TEXT),
    SWY_ENTRY(SILU_MUL, 1, "silu_mul", SWY_NO_ATTRS, SWY_OPERANDS(silu_mul, 1), SWY_ROWS(SAME, SAME), SWY_NOT_FUSED,
              ""),
    SWY_ENTRY(SILU_MUL, 2, "silu_mul", SWY_ATTRS(swy_activation_attrs, activation), SWY_OPERANDS(silu_mul, 1),
              SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, ""),
    SWY_ENTRY(SIGMOID_SCALE_ADD, 1, "sigmoid_scale_add", SWY_NO_ATTRS, SWY_OPERANDS(sigmoid_scale_add, 1),
              SWY_ROWS(SAME, SAME), SWY_NOT_FUSED, ""),
};

enum { SWY_OP_ENTRIES = sizeof(swy_op_table) / sizeof(swy_op_table[0]) };

#undef SWY_TABLE
#undef SWY_LENGTH
#undef SWY_NO_ATTRS
#undef SWY_ATTRS
#undef SWY_ATTRS_BEFORE
#undef SWY_ATTENTION_1
#undef SWY_MOE_1
#undef SWY_OPERANDS
#undef SWY_ROWS
#undef SWY_NOT_FUSED
#undef SWY_FUSED
#undef SWY_ENTRY
#undef SWY_ATTENTION_TEXT
#undef SWY_ATTENTION_2_TEXT
#undef SWY_DELTA_TEXT
#undef SWY_MOE_TEXT
#undef SWY_MLP_TEXT

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

/* The first bytes of an operation's attributes, those that its revision has; the rest of `attrs` [size] is 0. */
static inline void swy_copy_attrs(const swy_op* op, void* attrs, size_t size) {
  const swy_op_spec* spec = swy_find_op(op->id, op->revision);
  const size_t known = spec == NULL || spec->attrs_size > op->attrs_size ? op->attrs_size : spec->attrs_size;
  memset(attrs, 0, size);
  memcpy(attrs, op->attrs, known < size ? known : size);
}

/* The attributes of an ATTENTION, KV_APPEND or ATTEND, and of a MOE, MOE_ADD, ROUTER_TOPK or EXPERTS, in the form of
 * revision 2: what revision 1 always does is set for it. Only its angles come from elsewhere, from rope_theta. */
static inline swy_attention_attrs swy_attention_of(const swy_op* op) {
  swy_attention_attrs a;
  swy_copy_attrs(op, &a, sizeof a);
  if (op->revision != 1) return a;
  a.qk_norm = 1;
  a.rope_scale = 1;
  return a;
}
static inline swy_moe_attrs swy_moe_of(const swy_op* op) {
  swy_moe_attrs a;
  swy_copy_attrs(op, &a, sizeof a);
  if (op->revision != 1) return a;
  a.normalize = a.expert_groups = a.top_groups = 1;
  a.routed_scale = 1;
  return a;
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
