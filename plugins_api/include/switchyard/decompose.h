// SPDX-License-Identifier: Apache-2.0
/* How each composite is made of primitives, as data: for schedulers that fall back op by op, and for testing a
 * composite against its pieces. C11, self-contained. */
#ifndef SWITCHYARD_DECOMPOSE_H_
#define SWITCHYARD_DECOMPOSE_H_

#include <string.h>

#include "switchyard/op_table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The operands of a piece are swy_refs: the composite's own operands, or temporaries of the decomposition. */
enum { SWY_MAX_PIECES = 10, SWY_MAX_TEMPS = 12 };

typedef union swy_any_attrs {
  uint32_t struct_size;
  swy_rms_norm_attrs rms_norm;
  swy_attention_attrs attention;
  swy_gated_delta_attrs gated_delta;
  swy_moe_attrs moe;
  swy_heads_attrs heads;
  swy_activation_attrs activation;
} swy_any_attrs;

typedef struct swy_piece {
  uint32_t id; /* SWY_OP_* */
  uint32_t attrs_size;
  swy_any_attrs attrs;
  uint32_t input_count, weight_count, state_count, output_count;
  swy_ref inputs[4], weights[4], states[1], outputs[4];
  uint32_t revision;
} swy_piece;

typedef struct swy_decomposition {
  uint32_t piece_count;
  uint32_t temp_count;
  swy_piece pieces[SWY_MAX_PIECES];
  swy_tensor temps[SWY_MAX_TEMPS];
} swy_decomposition;

/* ---- building blocks -------------------------------------------------------------------------------------------- */

/* `attrs` are as long as those of this revision, or longer. */
static inline swy_piece* swy_add_piece(swy_decomposition* d, uint32_t id, uint32_t revision, const void* attrs) {
  swy_piece* p = &d->pieces[d->piece_count++];
  p->id = id;
  p->revision = revision;
  p->attrs_size = swy_find_op(id, revision)->attrs_size;
  if (p->attrs_size == 0 || attrs == 0) return p;
  memcpy(&p->attrs, attrs, p->attrs_size);
  p->attrs.struct_size = p->attrs_size;
  return p;
}
/* Adds what a piece reads, and states that it writes: each to the list of its kind. */
static inline void swy_piece_takes(swy_piece* p, swy_ref r) {
  if (SWY_REF_KIND(r) == SWY_REF_WEIGHT) {
    p->weights[p->weight_count++] = r;
  } else if (SWY_REF_KIND(r) == SWY_REF_STATE) {
    p->states[p->state_count++] = r;
  } else {
    p->inputs[p->input_count++] = r;
  }
}
/* The same of an operand by its name, where the operation has it. */
static inline void swy_piece_takes_named(swy_piece* p, const swy_op* op, const char* name) {
  const swy_ref r = swy_operand(op, name);
  if (r != SWY_REF_NONE) swy_piece_takes(p, r);
}
static inline void swy_piece_output(swy_piece* p, swy_ref r) { p->outputs[p->output_count++] = r; }

/* A temporary [rows of `like`, width]. */
static inline swy_ref swy_temp(swy_decomposition* d, const swy_tensor* like, swy_dtype dtype, uint64_t width) {
  swy_tensor* t = &d->temps[d->temp_count];
  memset(t, 0, sizeof *t);
  t->struct_size = (uint32_t)sizeof *t;
  t->dtype = dtype;
  t->rows = like->rows;
  t->rank = 2;
  t->dims[0] = like->dims[0];
  t->dims[1] = width;
  t->dims[2] = t->dims[3] = 1;
  return SWY_REF(SWY_REF_TEMP, d->temp_count++);
}

static inline swy_heads_attrs swy_heads(uint32_t heads, uint32_t head_dim) {
  swy_heads_attrs a;
  memset(&a, 0, sizeof a);
  a.struct_size = (uint32_t)sizeof a;
  a.heads = heads;
  a.head_dim = head_dim;
  return a;
}

/* ---- one function per composite --------------------------------------------------------------------------------- */

/* q or k: norm per head, then rotation, each if there is one. Returns the value after both. */
static inline swy_ref swy_norm_and_rotate(swy_decomposition* d, const swy_op* op, swy_ref x, uint32_t heads,
                                          const char* norm) {
  const swy_attention_attrs a = swy_attention_of(op);
  const swy_tensor* like = op->inputs[0];
  const uint64_t width = (uint64_t)heads * a.head_dim;
  swy_heads_attrs h = swy_heads(heads, a.head_dim);
  swy_piece* p;
  h.eps = a.norm_eps;
  h.weight_bias = a.norm_weight_bias;
  if (a.qk_norm) {
    const swy_ref normed = swy_temp(d, like, SWY_F32, width);
    p = swy_add_piece(d, SWY_OP_HEAD_RMS_NORM, 1, &h);
    swy_piece_takes(p, x);
    swy_piece_takes_named(p, op, norm);
    swy_piece_output(p, normed);
    x = normed;
  }
  if (op->revision == 1 || a.rotary_dim != 0) {
    const swy_ref rotated = swy_temp(d, like, SWY_F32, width);
    h.rotary_dim = a.rotary_dim;
    h.rope_theta = op->revision == 1 ? a.rope_theta : 0;
    h.rope_scale = op->revision == 1 ? 0 : a.rope_scale;
    p = swy_add_piece(d, SWY_OP_ROPE, op->revision, &h);
    swy_piece_takes(p, x);
    swy_piece_takes_named(p, op, "inv_freq");
    swy_piece_output(p, rotated);
    x = rotated;
  }
  return x;
}

static inline void swy_decompose_attention(const swy_op* op, swy_decomposition* d) {
  const swy_attention_attrs a = swy_attention_of(op);
  const swy_tensor* like = op->inputs[0];
  const uint64_t width = (uint64_t)a.heads * a.head_dim;
  swy_ref q = swy_operand(op, "q"), gate = 0, attended = swy_operand(op, "y");
  swy_attention_attrs stored = a;
  swy_ref k;
  swy_piece* p;
  if (a.gated) {
    const swy_heads_attrs h = swy_heads(a.heads, a.head_dim);
    q = swy_temp(d, like, SWY_F32, width);
    gate = swy_temp(d, like, SWY_F32, width);
    attended = swy_temp(d, like, SWY_F32, width);
    p = swy_add_piece(d, SWY_OP_HEAD_SPLIT, 1, &h);
    swy_piece_takes_named(p, op, "q");
    swy_piece_output(p, q);
    swy_piece_output(p, gate);
  }
  q = swy_norm_and_rotate(d, op, q, a.heads, "q_norm");
  k = swy_norm_and_rotate(d, op, swy_operand(op, "k"), a.kv_heads, "k_norm");
  if (op->revision != 1) stored.rope_theta = 1; /* KV_APPEND wants a number above 0 and does not read it */
  p = swy_add_piece(d, SWY_OP_KV_APPEND, 1, &stored);
  swy_piece_takes(p, k);
  swy_piece_takes_named(p, op, "v");
  swy_piece_takes_named(p, op, "kv");
  p = swy_add_piece(d, SWY_OP_ATTEND, op->revision, &a);
  swy_piece_takes(p, q);
  swy_piece_takes_named(p, op, "sinks");
  swy_piece_takes_named(p, op, "kv");
  swy_piece_output(p, attended);
  if (a.gated) {
    p = swy_add_piece(d, SWY_OP_SIGMOID_MUL, 1, 0);
    swy_piece_takes(p, attended);
    swy_piece_takes(p, gate);
    swy_piece_output(p, swy_operand(op, "y"));
  }
}

static inline void swy_decompose_gated_delta(const swy_op* op, swy_decomposition* d) {
  const swy_gated_delta_attrs* a = (const swy_gated_delta_attrs*)op->attrs;
  const swy_tensor* like = op->inputs[0];
  const uint64_t values = (uint64_t)a->value_heads * a->value_dim;
  const uint64_t channels = 2 * (uint64_t)a->key_heads * a->key_dim + values;
  swy_heads_attrs h = swy_heads(a->value_heads, a->value_dim);
  swy_ref mixed = swy_temp(d, like, SWY_F32, channels), beta = swy_temp(d, like, SWY_F32, a->value_heads);
  swy_ref g = swy_temp(d, like, SWY_F32, a->value_heads), o = swy_temp(d, like, SWY_F32, values);
  swy_piece* p = swy_add_piece(d, SWY_OP_CAUSAL_CONV, 1, a);
  swy_piece_takes(p, swy_operand(op, "qkv"));
  swy_piece_takes(p, swy_operand(op, "conv"));
  swy_piece_takes(p, swy_operand(op, "conv_state"));
  swy_piece_output(p, mixed);
  p = swy_add_piece(d, SWY_OP_DELTA_GATES, 1, a);
  swy_piece_takes(p, swy_operand(op, "b"));
  swy_piece_takes(p, swy_operand(op, "a"));
  swy_piece_takes(p, swy_operand(op, "a_log"));
  swy_piece_takes(p, swy_operand(op, "dt_bias"));
  swy_piece_output(p, beta);
  swy_piece_output(p, g);
  p = swy_add_piece(d, SWY_OP_DELTA_RULE, 1, a);
  swy_piece_takes(p, mixed);
  swy_piece_takes(p, beta);
  swy_piece_takes(p, g);
  swy_piece_takes(p, swy_operand(op, "delta_state"));
  swy_piece_output(p, o);
  h.eps = a->norm_eps;
  p = swy_add_piece(d, SWY_OP_GATED_RMS_NORM, 1, &h);
  swy_piece_takes(p, o);
  swy_piece_takes(p, swy_operand(op, "z"));
  swy_piece_takes(p, swy_operand(op, "norm"));
  swy_piece_output(p, swy_operand(op, "y"));
}

/* LINEAR with one weight, and with a bias if there is one. */
static inline void swy_linear_piece(swy_decomposition* d, swy_ref x, swy_ref weight, swy_ref bias, swy_ref y) {
  swy_piece* p = swy_add_piece(d, SWY_OP_LINEAR, bias == SWY_REF_NONE ? 1 : 2, 0);
  swy_piece_takes(p, x);
  swy_piece_takes(p, weight);
  if (bias != SWY_REF_NONE) swy_piece_takes(p, bias);
  swy_piece_output(p, y);
}

/* act(gate, up) in a temporary. */
static inline swy_ref swy_activation_piece(swy_decomposition* d, const swy_tensor* like,
                                           const swy_activation_attrs* act, swy_ref gate, swy_ref up, uint64_t width) {
  const swy_ref product = swy_temp(d, like, SWY_F32, width);
  swy_piece* p = swy_add_piece(d, SWY_OP_SILU_MUL, act->activation == SWY_ACT_SILU ? 1 : 2, act);
  swy_piece_takes(p, gate);
  swy_piece_takes(p, up);
  swy_piece_output(p, product);
  return product;
}

/* The experts that the router picks, and their weights. */
static inline void swy_route(const swy_op* op, swy_decomposition* d, const swy_moe_attrs* a, swy_ref* ids,
                             swy_ref* weights) {
  const swy_tensor* like = op->inputs[0];
  const swy_ref logits = swy_temp(d, like, SWY_F32, a->experts);
  swy_piece* p;
  *ids = swy_temp(d, like, SWY_I32, a->top_k);
  *weights = swy_temp(d, like, SWY_F32, a->top_k);
  swy_linear_piece(d, swy_operand(op, "x"), swy_operand(op, "router"), swy_operand(op, "router_bias"), logits);
  p = swy_add_piece(d, SWY_OP_ROUTER_TOPK, op->revision, a);
  swy_piece_takes(p, logits);
  swy_piece_takes_named(p, op, "correction_bias");
  swy_piece_output(p, *ids);
  swy_piece_output(p, *weights);
}

/* y = routed + sigmoid(shared_gate x) * shared(x) */
static inline void swy_add_shared_expert(const swy_op* op, swy_decomposition* d, const swy_moe_attrs* a,
                                         swy_ref routed) {
  const swy_tensor* like = op->inputs[0];
  const swy_activation_attrs act = {sizeof act, a->activation, a->act_alpha, a->act_limit};
  const swy_ref x = swy_operand(op, "x");
  const swy_ref gate = swy_temp(d, like, SWY_F32, a->shared_width), up = swy_temp(d, like, SWY_F32, a->shared_width);
  swy_ref product, shared, mix;
  swy_piece* p;
  swy_linear_piece(d, x, swy_operand(op, "shared_gate_proj"), SWY_REF_NONE, gate);
  swy_linear_piece(d, x, swy_operand(op, "shared_up_proj"), SWY_REF_NONE, up);
  product = swy_activation_piece(d, like, &act, gate, up, a->shared_width);
  shared = swy_temp(d, like, SWY_F32, like->dims[1]);
  mix = swy_temp(d, like, SWY_F32, 1);
  swy_linear_piece(d, product, swy_operand(op, "shared_down_proj"), SWY_REF_NONE, shared);
  swy_linear_piece(d, x, swy_operand(op, "shared_gate"), SWY_REF_NONE, mix);
  p = swy_add_piece(d, SWY_OP_SIGMOID_SCALE_ADD, 1, 0);
  swy_piece_takes(p, routed);
  swy_piece_takes(p, shared);
  swy_piece_takes(p, mix);
  swy_piece_output(p, swy_operand(op, "y"));
}

static inline void swy_decompose_moe(const swy_op* op, swy_decomposition* d) {
  const swy_moe_attrs a = swy_moe_of(op);
  const swy_ref y = swy_operand(op, "y");
  swy_ref ids = swy_operand(op, "expert_ids"), weights = swy_operand(op, "expert_weights"), routed = y;
  swy_piece* p;
  if (ids == SWY_REF_NONE) swy_route(op, d, &a, &ids, &weights);
  if (a.shared_width != 0) routed = swy_temp(d, op->inputs[0], SWY_F32, op->inputs[0]->dims[1]);
  p = swy_add_piece(d, SWY_OP_EXPERTS, op->revision, &a);
  swy_piece_takes_named(p, op, "x");
  swy_piece_takes(p, ids);
  swy_piece_takes(p, weights);
  swy_piece_takes_named(p, op, "gate_up");
  swy_piece_takes_named(p, op, "down");
  swy_piece_takes_named(p, op, "gate_up_bias");
  swy_piece_takes_named(p, op, "down_bias");
  swy_piece_output(p, routed);
  if (a.shared_width != 0) swy_add_shared_expert(op, d, &a, routed);
}

static inline void swy_decompose_mlp(const swy_op* op, swy_decomposition* d) {
  const swy_mlp_attrs* a = (const swy_mlp_attrs*)op->attrs;
  const swy_tensor* like = op->inputs[0];
  const swy_activation_attrs act = {sizeof act, a->activation, a->act_alpha, a->act_limit};
  const swy_ref gate = swy_temp(d, like, SWY_F32, a->width), up = swy_temp(d, like, SWY_F32, a->width);
  swy_piece* p = swy_add_piece(d, SWY_OP_LINEAR, 1, 0);
  swy_piece_takes_named(p, op, "x");
  swy_piece_takes_named(p, op, "gate");
  swy_piece_takes_named(p, op, "up");
  swy_piece_output(p, gate);
  swy_piece_output(p, up);
  swy_linear_piece(d, swy_activation_piece(d, like, &act, gate, up, a->width), swy_operand(op, "down"), SWY_REF_NONE,
                   swy_operand(op, "y"));
}

static inline void swy_decompose_lm_head(const swy_op* op, swy_decomposition* d) {
  const swy_ref x = swy_temp(d, op->outputs[0], op->inputs[0]->dtype, op->inputs[0]->dims[1]);
  swy_piece* p = swy_add_piece(d, SWY_OP_GATHER_ROWS, 1, 0);
  swy_piece_takes(p, swy_operand(op, "x"));
  swy_piece_output(p, x);
  swy_linear_piece(d, x, swy_operand(op, "w"), SWY_REF_NONE, swy_operand(op, "logits"));
}

/* Fills `out` and returns 0, or returns 1 if the op has no decomposition. The op must be well formed. */
static inline int swy_decompose(const swy_op* op, swy_decomposition* out) {
  memset(out, 0, sizeof *out);
  if (swy_find_op(op->id, op->revision) == NULL) return 1;
  switch (op->id) {
    case SWY_OP_ATTENTION:
      swy_decompose_attention(op, out);
      return 0;
    case SWY_OP_GATED_DELTA:
      if (op->revision != 1) return 1;
      swy_decompose_gated_delta(op, out);
      return 0;
    case SWY_OP_MOE:
      swy_decompose_moe(op, out);
      return 0;
    case SWY_OP_MLP:
      swy_decompose_mlp(op, out);
      return 0;
    case SWY_OP_LM_HEAD:
      swy_decompose_lm_head(op, out);
      return 0;
    default:
      return 1;
  }
}

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* SWITCHYARD_DECOMPOSE_H_ */
