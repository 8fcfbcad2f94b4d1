// SPDX-License-Identifier: Apache-2.0
/* Operations: what a program is made of and what a backend implements. C11, self-contained.
 *
 * An operation has an id, a revision, an attribute struct, and operands in four lists, each in the order given here:
 * inputs and outputs (activations), weights, and states. Activations are [rows, width], row-major, without padding
 * between rows. `rows` is one of the step's row counts (see swy_rows). Weights are [out, in] or [experts, out, in] with
 * the contraction dimension last; weights.h has their encodings. The matrices of EMBEDDING,
 * LINEAR, MLP, MOE, EXPERTS and LM_HEAD, and of their fused forms, may be quantized. All others (norms, biases,
 * convolutions, a_log, dt_bias) are f32 or bf16; op_table.h says which an operation takes.
 *
 * Three families, and operations that have a name instead (SWY_OP_NAMED):
 *   composites        what programs are written in
 *   fused composites  a composite with its neighbour; the scheduler forms them where a backend has a kernel
 *   primitives        the pieces of a composite's decomposition (decompose.h), for backends that have no kernel for it
 *
 * Accumulation is fp32 or wider. Norms, router softmax, gates and the delta state are fp32 whatever the activations
 * are; between steps a backend may keep a state in a shorter form (swy_state_layout), which its kernels then name
 * (swy_kernel.activations). The arithmetic is that of Qwen3.5-MoE as transformers 5.17 (`qwen3_5_moe`) computes it; of
 * the second revisions also that of gpt-oss (`gpt_oss`) and of DeepSeek-V3's router (`deepseek_v3`).
 *
 * A second revision keeps of the first all that its text does not change: operands, their places, fields. Its attribute
 * struct is the same one, with fields appended; operations of revision 1 have the struct without these.
 * swy_attention_of and swy_moe_of (op_table.h) give the attributes of either revision in the form of the second.
 */
#ifndef SWITCHYARD_OPS_H_
#define SWITCHYARD_OPS_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define SWY_STATIC_ASSERT(cond, text) static_assert(cond, text)
#else
#define SWY_STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#endif
#define SWY_AT(type, field, offset) SWY_STATIC_ASSERT(offsetof(type, field) == (offset), #type "." #field " moved")
#define SWY_SIZE(type, size) SWY_STATIC_ASSERT(sizeof(type) == (size), #type " changed its size")

/* ---- element types ---------------------------------------------------------------------------------------------- */

/* Types of activations and states, and encodings of weights, in one numbering. A set of them is a bit mask,
 * SWY_DTYPE_BIT(d). */
typedef uint32_t swy_dtype;
enum {
  SWY_F32 = 1,
  SWY_BF16 = 2,
  SWY_I32 = 3,
  SWY_I8 = 4,  /* weights: w = q * s;       q in -127..127, fp16 scale per group */
  SWY_I4 = 5,  /* weights: w = (q - 8) * s; q in 0..15,     fp16 scale per group */
  SWY_I4A = 6, /* weights: w = q * s + o;   q in 0..15,     fp16 scale and offset per group */

  /* Types of scales (swy_encoding). As types of weights: Reserved: no host makes it yet. */
  SWY_F16 = 7,
  SWY_F8_E4M3 = 8, /* 4 bits of exponent, 3 of fraction; no infinity */
  SWY_E8M0 = 9,    /* an exponent alone: 2^(byte - 127); 255 is no number */

  SWY_F8_E5M2 = 10, /* Reserved: no host makes it yet. */
  /* weights: w = e2m1(q) * 2^(s - 127); q in 0..15, an SWY_E8M0 scale per group of 32. The OCP's MXFP4. */
  SWY_MXFP4 = 11,
  SWY_NVFP4 = 12, /* Reserved: no host makes it yet. */

  SWY_ENCODED = 31, /* weights: as swy_tensor.encoding describes */
};
#define SWY_DTYPE_BIT(d) (1u << (d))

/* Which count of the step an activation's rows follow. */
typedef uint32_t swy_rows;
enum {
  SWY_ROWS_STEP = 0,   /* swy_step.rows: every token of the step */
  SWY_ROWS_LOGITS = 1, /* swy_step.logit_rows: the rows whose logits are wanted */
  SWY_ROWS_SAMPLE = 2, /* swy_step.sample_rows: the rows that are sampled on the device */
};

/* What a state tensor is indexed by. */
typedef uint32_t swy_state_kind;
enum {
  SWY_STATE_NONE = 0,    /* not a state */
  SWY_STATE_SLOTTED = 1, /* dims describe one slot; read from a step's read slot, written to its write slot */
  SWY_STATE_PAGED = 2,   /* dims describe one token; found through the step's block table */
};

/* Operations and encodings that this header does not list have a name instead: "acme.gelu/1". A vendor, a dot, more of
 * [a-z0-9._-], a slash, and a revision from 1 on; at most SWY_MAX_NAME bytes, the first a letter. What a name means
 * never changes: what differs gets another revision. */
enum {
  SWY_MAX_NAME = 63,
  SWY_MAX_NAMED_OPERANDS = 16,     /* inputs, weights, states and outputs of an operation with a name: of each kind */
  SWY_MAX_NAMED_ATTRS = 4096,      /* bytes of its attributes */
  SWY_MAX_ENCODING_GROUP = 1 << 16 /* elements */
};

/* Whether `name` is such a name. NULL is none. */
static inline int swy_is_name(const char* name) {
  size_t n = 0, dot = 0;
  if (name == NULL || name[0] < 'a' || name[0] > 'z') return 0;
  for (; name[n] != '/'; ++n) {
    const char c = name[n];
    if (n == SWY_MAX_NAME || !((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-')) {
      return 0;
    }
    if (c == '.' && dot == 0) dot = n;
  }
  if (dot == 0 || dot + 1 == n || name[n + 1] < '1' || name[n + 1] > '9') return 0;
  for (++n; n < SWY_MAX_NAME && name[n] >= '0' && name[n] <= '9'; ++n) continue;
  return name[n] == '\0';
}

/* A weight's encoding as data: w = codes[q] * scale, or codes[q] * scale + offset. Each row is cut into groups with one
 * scale (and offset) each; weights.h says where the bytes lie. Two encodings of one name are equal. */
typedef struct swy_encoding {
  uint32_t struct_size;
  uint32_t bits;  /* of q: 1..8 */
  uint32_t group; /* elements per scale along the contraction dimension, at most SWY_MAX_ENCODING_GROUP; 0: a row */
  swy_dtype scale_dtype; /* of scales and offsets: SWY_F32, SWY_F16, SWY_BF16; of scales without offsets also SWY_E8M0,
                            SWY_F8_E4M3 */
  uint32_t has_offset;   /* 0 or 1 */
  uint32_t reserved;
  const char* name;   /* "acme.nf4/1" */
  const float* codes; /* [2^bits], finite */
} swy_encoding;
SWY_AT(swy_encoding, name, 24);
SWY_SIZE(swy_encoding, 40);

/* One operand. `layout` 0 is canonical: row-major, and for weights as weights.h says. A packed weight keeps the dims of
 * the canonical tensor. Unused dims are 1. */
typedef struct swy_tensor {
  uint32_t struct_size;
  swy_dtype dtype;
  uint32_t group;  /* weights: elements per scale along the contraction dimension; 0: one group per row */
  uint32_t layout; /* packed layout id of the backend (weights) or state layout id (states) */
  swy_rows rows;   /* activations */
  swy_state_kind state;
  uint32_t rank;
  uint32_t reserved;
  uint64_t dims[4]; /* activations: [rows of the bucket, width] */
  /* SWY_ENCODED: the encoding, whose `group` is this tensor's; otherwise NULL. A kernel meets only encodings that it
   * names (swy_kernel.encodings), and a range's backend those that one of its kernels for the operation names. */
  const swy_encoding* encoding;
} swy_tensor;
SWY_AT(swy_tensor, rank, 24);
SWY_AT(swy_tensor, dims, 32);
SWY_AT(swy_tensor, encoding, 64);
SWY_SIZE(swy_tensor, 72);

/* One operation with its operands' descriptions. Pointers are the caller's and live as long as the call. An operand
 * list is an array of pointers, so that swy_tensor can grow. */
typedef struct swy_op {
  uint32_t struct_size;
  uint32_t id;       /* SWY_OP_* */
  uint32_t revision; /* 1 is the first */
  uint32_t attrs_size;
  const void* attrs; /* the op's attribute struct; NULL where the op has none */
  uint32_t input_count;
  uint32_t weight_count;
  uint32_t state_count;
  uint32_t output_count;
  const swy_tensor* const* inputs;
  const swy_tensor* const* weights;
  const swy_tensor* const* states;
  const swy_tensor* const* outputs;
  const char* name; /* SWY_OP_NAMED: which operation it is; otherwise NULL */
} swy_op;
SWY_AT(swy_op, attrs, 16);
SWY_AT(swy_op, input_count, 24);
SWY_AT(swy_op, inputs, 40);
SWY_AT(swy_op, outputs, 64);
SWY_AT(swy_op, name, 72);
SWY_SIZE(swy_op, 80);

/* ---- ids -------------------------------------------------------------------------------------------------------- */

typedef uint32_t swy_op_id;
enum {
  /* composites */
  SWY_OP_EMBEDDING = 1,
  SWY_OP_RMS_NORM = 2,
  SWY_OP_LINEAR = 3,
  SWY_OP_ATTENTION = 4,
  SWY_OP_GATED_DELTA = 5,
  SWY_OP_MOE = 6,
  SWY_OP_ADD = 7,
  SWY_OP_LM_HEAD = 8,
  SWY_OP_SAMPLE = 9,
  SWY_OP_TOP_CANDIDATES = 10,
  SWY_OP_MLP = 11,

  /* fused composites */
  SWY_OP_ADD_RMS_NORM = 32,
  SWY_OP_RMS_NORM_LINEAR = 33,
  SWY_OP_LINEAR_ADD = 34,
  SWY_OP_MOE_ADD = 35,
  SWY_OP_LM_HEAD_SAMPLE = 36,
  SWY_OP_MLP_ADD = 37,

  /* primitives */
  SWY_OP_CAST = 64,
  SWY_OP_GATHER_ROWS = 65,
  SWY_OP_HEAD_SPLIT = 66,
  SWY_OP_HEAD_RMS_NORM = 67,
  SWY_OP_ROPE = 68,
  SWY_OP_KV_APPEND = 69,
  SWY_OP_ATTEND = 70,
  SWY_OP_SIGMOID_MUL = 71,
  SWY_OP_CAUSAL_CONV = 72,
  SWY_OP_DELTA_GATES = 73,
  SWY_OP_DELTA_RULE = 74,
  SWY_OP_GATED_RMS_NORM = 75,
  SWY_OP_ROUTER_TOPK = 76,
  SWY_OP_EXPERTS = 77,
  SWY_OP_SILU_MUL = 78,
  SWY_OP_SIGMOID_SCALE_ADD = 79,

  /* Every operation that has a name instead of an id (swy_op.name). Its revision is 1; its attributes are bytes that
   * only its kernels understand, aligned to 8. The program has operations of this header, or further ones with names,
   * to do the same: they run where no kernel takes it. */
  SWY_OP_NAMED = 0x10000,
};

/* ---- composites ------------------------------------------------------------------------------------------------- */

/* EMBEDDING r1. inputs: none (token ids come from the step). weights: table [vocab, hidden].
 * outputs: [rows, hidden]. No attributes. */

/* RMS_NORM r1. inputs: x [rows, width]. weights: w [width]. outputs: y [rows, width].
 * y = x * rsqrt(mean(x^2) + eps) * (weight_bias + w), in fp32. */
typedef struct swy_rms_norm_attrs {
  uint32_t struct_size;
  float eps;
  float weight_bias; /* 1 for Qwen3.5's norms, which store w - 1; 0 for a plain weight */
  uint32_t reserved;
} swy_rms_norm_attrs;
SWY_SIZE(swy_rms_norm_attrs, 16);

/* LINEAR r1. inputs: x [rows, in]. weights: 1..8 of [out_i, in]. outputs: y_i [rows, out_i] = x * w_i^T, one per
 * weight. No attributes. Rows are those of x.
 * LINEAR r2. weights: after all w_i, as many bias_i [out_i]. outputs: y_i = x * w_i^T + bias_i. */
enum { SWY_LINEAR_MAX_WEIGHTS = 8 };

/* ATTENTION r1. Causal grouped-query attention with per-head q/k norm, rotary embedding and an output gate.
 * inputs: q [rows, heads * head_dim * (gated ? 2 : 1)], per head [q (head_dim) | gate (head_dim)];
 *         k, v [rows, kv_heads * head_dim].
 * weights: q_norm, k_norm [head_dim] (fp32 or bf16).
 * states: kv, paged, per token [2 (k, v), kv_heads, head_dim]; k is stored after norm and rotation.
 * outputs: [rows, heads * head_dim] = softmax(scale * q k^T) v * sigmoid(gate).
 * Element i of the rotated part of a head at position p turns together with element i + rotary_dim / 2, by the angle
 * p * rope_theta^(-2 i / rotary_dim): y_i = x_i cos - x_j sin, y_j = x_j cos + x_i sin, with j = i + rotary_dim / 2.
 * Decomposition: HEAD_SPLIT, HEAD_RMS_NORM (q, k), ROPE (q, k), KV_APPEND, ATTEND, SIGMOID_MUL.
 *
 * ATTENTION r2. weights, each only where it applies: with qk_norm 1, q_norm and k_norm; with rotary_dim above 0,
 * inv_freq f32 [rotary_dim / 2]; with sinks 1, sinks [heads].
 * Without qk_norm, q and k rotate as they come. The angle is p * inv_freq[i], with no more error than its product in
 * fp32 has. Its cosine and its sine are both multiplied by rope_scale, for q and for k. rope_theta is not read: plain
 * rotation and YaRN differ in these numbers alone.
 * With a window above 0, position p reads positions max(0, p - window + 1) to p. Older rows of kv are not read; they
 * may hold anything.
 * With sinks, the softmax of query head h runs over its scores and over one number more, sinks[h], which is not scaled
 * and has no value: p_j = exp(score_j - m) / (sum_j exp(score_j - m) + exp(sinks[h] - m)), m the largest of them all.
 */
typedef struct swy_attention_attrs {
  uint32_t struct_size;
  uint32_t heads;
  uint32_t kv_heads; /* divides heads; query head h reads KV head h / (heads / kv_heads) */
  uint32_t head_dim;
  uint32_t rotary_dim; /* even, <= head_dim; the first rotary_dim of each head rotate, i with i + rotary_dim / 2 */
  float rope_theta;
  float scale; /* head_dim^-0.5 */
  float norm_eps;
  float norm_weight_bias;
  uint32_t gated; /* 0 or 1 */
  uint32_t reserved[2];
  /* From revision 2 on. */
  uint32_t qk_norm; /* 0 or 1; revision 1 always norms */
  uint32_t sinks;   /* 0 or 1 */
  uint32_t window;  /* positions that a row reads, its own among them; 0: all */
  float rope_scale; /* of cosines and sines: 1 for plain rotation, YaRN's attention factor */
} swy_attention_attrs;
SWY_AT(swy_attention_attrs, qk_norm, 48);
SWY_SIZE(swy_attention_attrs, 64);

/* GATED_DELTA r1. The gated delta rule (Yang et al. 2024, "Gated Delta Networks") with its causal convolution and gated
 * norm. Let K = key_heads * key_dim, V = value_heads * value_dim, C = 2 K + V.
 * inputs: qkv [rows, C] = q | k | v; z [rows, V]; b, a [rows, value_heads].
 * weights: conv [C, conv_kernel], the tap of the current input last; a_log, dt_bias [value_heads]; norm [value_dim].
 * states: conv_state, slotted [C, conv_kernel - 1], the last inputs, oldest first; delta_state, slotted fp32
 *         [value_heads, key_dim, value_dim].
 * outputs: [rows, V].
 * Per row: u = silu(causal_conv(qkv)); q, k L2-normalised per head (x * rsqrt(sum x^2 + l2_eps)), q times key_dim^-0.5;
 * beta = sigmoid(b), g = -exp(a_log) * softplus(a + dt_bias); per value head h with key head h / (value_heads /
 * key_heads): S *= exp(g); d = beta * (v - S^T k); S += k d^T; o = S^T q; out = rms_norm(o; eps) * norm * silu(z).
 * Decomposition: CAUSAL_CONV, DELTA_GATES, DELTA_RULE, GATED_RMS_NORM.
 *
 * GATED_DELTA r2. The same with pending rows (step.h). No program file has it: a host makes it of r1 where every such
 * operation has a kernel for it.
 * states: after the others, pending, slotted fp32 [pending_rows, C + 2 * value_heads]: room for so many rows of each
 *         sequence, such as their qkv, b and a. What is in it, and in which order, is for the backend to choose; it may
 *         take more in its state_layout. Only kernels of the device read and write it, and only rows that a step leaves
 *         pending; states are imported and exported without it.
 * Rows that stand give the states that r1 would have given them in the step that brought them. A kernel that is
 * DETERMINISTIC and BATCH_INVARIANT gives them bit for bit, and so are the outputs those of r1.
 * No decomposition. */
typedef struct swy_gated_delta_attrs {
  uint32_t struct_size;
  uint32_t key_heads;
  uint32_t value_heads; /* a multiple of key_heads */
  uint32_t key_dim;     /* per head */
  uint32_t value_dim;   /* per head */
  uint32_t conv_kernel; /* >= 2 */
  float norm_eps;
  float l2_eps;
} swy_gated_delta_attrs;
SWY_SIZE(swy_gated_delta_attrs, 32);

/* MOE r1. Sparse mixture of experts with an optional shared expert.
 * inputs: x [rows, hidden]; optionally expert_ids i32 [rows, top_k] and expert_weights f32 [rows, top_k], which then
 *         replace the router (tests inject a routing this way). An id outside 0..experts - 1, taken as unsigned, counts
 *         as experts - 1, so that no id makes a kernel read or write outside its operands. A program file must take its
 *         ids from a ROUTER_TOPK of the same `experts`. The same is true of EXPERTS.
 * weights: router [experts, hidden]; gate_up [experts, 2 * width, hidden], the gate rows first;
 *          down [experts, hidden, width]; with shared_width > 0 also shared_gate_proj, shared_up_proj [shared_width,
 *          hidden], shared_down_proj [hidden, shared_width], shared_gate [1, hidden].
 * outputs: [rows, hidden] = sum over the top_k of p_e * down_e(silu(gate_e x) * up_e x)
 *          + sigmoid(shared_gate x) * shared(x).
 * p = softmax(router x) over all experts in fp32, the top_k largest (ties to the lowest id), divided by their sum.
 * Decomposition: LINEAR (router), ROUTER_TOPK, EXPERTS, LINEAR (shared gate, up, shared_gate), SILU_MUL, LINEAR,
 * SIGMOID_SCALE_ADD.
 *
 * MOE r2. weights, after all others and each only where it applies: with router_bias 1, router_bias [experts]; with
 * correction_bias 1, correction_bias [experts]; with expert_bias 1, gate_up_bias [experts, 2 * width], the gates'
 * first, and down_bias [experts, hidden].
 * outputs: sum over the top_k of p_e * (down_e act(gate_e x + its bias, up_e x + its bias) + down_bias_e)
 *          + sigmoid(shared_gate x) * shared(x). The shared expert has the same act (swy_activation) and no biases.
 * How p comes about, all in fp32:
 *   l = router x + router_bias
 *   score: SOFTMAX_TOPK: softmax(l) over all experts; TOPK_SOFTMAX: l; SIGMOID_TOPK: sigmoid(l)
 *   choice = score + correction_bias
 *   With expert_groups above 1, experts are cut into so many runs of equal length. A group ranks by the sum of its two
 *   largest choices, or by its only one. The experts of the top_groups highest groups (ties to the lowest group)
 * remain; without groups, all do. The top_k largest choices of those that remain are taken, in this order (ties to the
 * lowest id). p: SOFTMAX_TOPK and SIGMOID_TOPK: score, with normalize 1 divided by (the sum of those taken + 1e-20);
 *      TOPK_SOFTMAX: softmax(score) over those taken
 *   p is multiplied by routed_scale.
 * So TOPK_SOFTMAX gives the same as SOFTMAX_TOPK with normalize 1 and without correction_bias, but for rounding.
 * Weights that come as expert_weights are used as they are. */
typedef uint32_t swy_router;
enum { SWY_ROUTER_SOFTMAX_TOPK = 0, SWY_ROUTER_TOPK_SOFTMAX = 1, SWY_ROUTER_SIGMOID_TOPK = 2 };

/* act(g, u), in fp32:
 *   SILU     silu(g) * u
 *   CLAMPED  g' * sigmoid(act_alpha * g') * (u' + 1), with g' = min(g, act_limit), u' = min(max(u, -act_limit),
 *            act_limit). gpt-oss has act_alpha 1.702 and act_limit 7. */
typedef uint32_t swy_activation;
enum { SWY_ACT_SILU = 0, SWY_ACT_CLAMPED = 1 };

typedef struct swy_moe_attrs {
  uint32_t struct_size;
  uint32_t experts;
  uint32_t top_k;
  uint32_t width;        /* of one expert */
  uint32_t shared_width; /* 0: no shared expert */
  uint32_t reserved[3];
  /* From revision 2 on. */
  uint32_t router;        /* swy_router */
  uint32_t normalize;     /* 0 or 1; revision 1 always does. TOPK_SOFTMAX does not read it */
  uint32_t expert_groups; /* divides experts; 1: no groups */
  uint32_t top_groups;    /* at most expert_groups */
  float routed_scale;     /* above 0 */
  uint32_t router_bias;   /* 0 or 1, and so the next two */
  uint32_t correction_bias;
  uint32_t expert_bias;
  uint32_t activation; /* swy_activation */
  float act_alpha;     /* CLAMPED */
  float act_limit;     /* CLAMPED */
  uint32_t reserved2;
} swy_moe_attrs;
SWY_AT(swy_moe_attrs, router, 32);
SWY_SIZE(swy_moe_attrs, 80);

/* MLP r1. inputs: x [rows, hidden]. weights: gate, up [width, hidden]; down [out, width].
 * outputs: [rows, out] = down act(gate x, up x).
 * Decomposition: LINEAR (gate, up), SILU_MUL, LINEAR (down). */
typedef struct swy_mlp_attrs {
  uint32_t struct_size;
  uint32_t width;
  uint32_t activation; /* swy_activation, and its numbers */
  float act_alpha;
  float act_limit;
  uint32_t reserved[3];
} swy_mlp_attrs;
SWY_SIZE(swy_mlp_attrs, 32);

/* ADD r1. inputs: x, residual [rows, width]. outputs: x + residual. No attributes. */

/* LM_HEAD r1. inputs: x [rows, hidden], rows of the step. weights: w [vocab, hidden]. outputs: f32 [logit rows, vocab]
 * = x[logit_row[i]] * w^T. No attributes. Decomposition: GATHER_ROWS, LINEAR. */

/* SAMPLE r1. inputs: logits f32 [logit rows, vocab]. states: optionally counts, slotted i32 [vocab]. outputs:
 * swy_sample_result as i32 [sample rows, 4]; optionally i32 [sample rows, n] and f32 [sample rows, n], the ids and
 * log-probabilities of the n most likely tokens (swy_row_top_logprobs; id -1 and 0 for a row that failed). No
 * attributes. The chain of sampling_math.h with each sampling row's parameters from the step. The token also goes to
 * the device's token buffer; a row that failed puts 0 there, which every table has, and writes no counts: its write
 * slot stays as it was. Counts: a word per id as sampling_math.h says. The host writes a slot (state_import) when a
 * prompt begins and whenever more prompt follows; SAMPLE reads it and writes it with the drawn token counted
 * (swy_count_output). Without the state there are no penalties. */

/* TOP_CANDIDATES r1. inputs and states: SAMPLE's (counts are only read). outputs: i32 [sample rows, k] ids and f32
 * [sample rows, k] their logits, unmodified, best first; swy_candidates_result as i32 [sample rows, 8]. What is best
 * follows from steps 0 to 3 of the chain with the row's parameters, mask and biases, so that the host can finish the
 * draw from the candidates, or tell that they do not decide it (swy_row_candidates is the reference). */
typedef struct swy_top_candidates_attrs {
  uint32_t struct_size;
  uint32_t k;
  uint32_t reserved[2];
} swy_top_candidates_attrs;
SWY_SIZE(swy_top_candidates_attrs, 16);

/* ---- fused composites ------------------------------------------------------------------------------------------- */

/* ADD_RMS_NORM r1. inputs: x, residual. weights: w. outputs: x + residual, and its norm. Attributes of RMS_NORM. */
/* RMS_NORM_LINEAR r1. inputs: x. weights: the norm's w, then LINEAR's. outputs: LINEAR's. Attributes of RMS_NORM. */
/* RMS_NORM_LINEAR r2. weights: the norm's w, then those of LINEAR r2. */
/* LINEAR_ADD r1. inputs: x, residual [rows, out]. weights: one. outputs: x * w^T + residual. No attributes. */
/* LINEAR_ADD r2. weights: w, bias [out]. outputs: x * w^T + bias + residual. */
/* MOE_ADD r1. inputs: MOE's x, residual [rows, hidden]. weights: MOE's. outputs: moe(x) + residual. Attributes of MOE.
 */
/* MOE_ADD r2. The same with MOE r2. */
/* MLP_ADD r1. inputs: MLP's x, residual [rows, out]. weights: MLP's. outputs: mlp(x) + residual. Attributes of MLP. */
/* LM_HEAD_SAMPLE r1. inputs and weights: LM_HEAD's. states and outputs: SAMPLE's. No attributes. The logits that it
 * draws from are bit-identical to those of the same backend's LM_HEAD. */

/* ---- primitives ------------------------------------------------------------------------------------------------- */

/* CAST r1. inputs: x. outputs: x in another dtype (round to nearest even). No attributes. */
/* GATHER_ROWS r1. inputs: x [rows, width]. outputs: [logit rows, width], x[logit_row[i]]. No attributes. */

/* Shape of a [rows, heads * head_dim] activation, for the primitives that work on heads. */
typedef struct swy_heads_attrs {
  uint32_t struct_size;
  uint32_t heads;
  uint32_t head_dim;
  float eps;           /* HEAD_RMS_NORM, GATED_RMS_NORM */
  float weight_bias;   /* HEAD_RMS_NORM */
  uint32_t rotary_dim; /* ROPE */
  float rope_theta;    /* ROPE r1 */
  float rope_scale;    /* ROPE r2; 0 in all others */
} swy_heads_attrs;
SWY_SIZE(swy_heads_attrs, 32);

/* HEAD_SPLIT r1. inputs: x [rows, heads * 2 * head_dim], per head [first | second]. outputs: first, second
 * [rows, heads * head_dim]. Attributes: heads. */
/* HEAD_RMS_NORM r1. RMS_NORM per head. inputs: x. weights: w [head_dim]. outputs: y. Attributes: heads. */
/* ROPE r1. inputs: x. outputs: y, rotated by the step's row positions. Attributes: heads. */
/* ROPE r2. weights: inv_freq f32 [rotary_dim / 2]. rotary_dim is above 0. Angles and rope_scale as in ATTENTION r2. */
/* KV_APPEND r1. inputs: k, v [rows, kv_heads * head_dim]. states: kv. outputs: none. Writes each row at its position.
 * Attributes: attention. */
/* ATTEND r1. inputs: q [rows, heads * head_dim]. states: kv (this step's rows already appended).
 * outputs: [rows, heads * head_dim]. Attributes: attention. */
/* ATTEND r2. weights: with sinks 1, sinks [heads]. Window and sinks as in ATTENTION r2. */
/* SIGMOID_MUL r1. inputs: x, gate [rows, width]. outputs: x * sigmoid(gate). No attributes. */
/* CAUSAL_CONV r1. inputs: x [rows, C]. weights: conv [C, kernel]. states: conv. outputs: silu(conv(x)) [rows, C].
 * Attributes: gated_delta. */
/* DELTA_GATES r1. inputs: b, a [rows, value_heads]. weights: a_log, dt_bias. outputs: f32 beta, g [rows, value_heads].
 * Attributes: gated_delta. */
/* DELTA_RULE r1. inputs: qkv [rows, C] after convolution; f32 beta, g [rows, value_heads]. states: delta.
 * outputs: o [rows, V], with the L2 norms of q and k inside. Attributes: gated_delta. */
/* GATED_RMS_NORM r1. inputs: o, z [rows, heads * head_dim]. weights: w [head_dim].
 * outputs: rms_norm(o) * w * silu(z), per head. Attributes: heads. */
/* ROUTER_TOPK r1. inputs: router logits [rows, experts]. outputs: i32 ids, f32 weights [rows, top_k], in order of
 * falling weight (ties to the lowest id). Attributes: moe. */
/* ROUTER_TOPK r2. inputs: l of MOE r2, its router_bias added already. weights: with correction_bias 1, correction_bias
 * [experts]. outputs: the experts that MOE r2 takes, in its order, and their p. */
/* EXPERTS r1. inputs: x [rows, hidden], i32 ids, f32 weights [rows, top_k]. weights: gate_up, down.
 * outputs: [rows, hidden]. Attributes: moe. */
/* EXPERTS r2. weights: with expert_bias 1, gate_up_bias and down_bias after the others. The experts' part of MOE r2. */
/* SILU_MUL r1. inputs: gate, up [rows, width]. outputs: silu(gate) * up. No attributes. */
/* SILU_MUL r2. outputs: act(gate, up). */
typedef struct swy_activation_attrs {
  uint32_t struct_size;
  uint32_t activation; /* swy_activation, and its numbers */
  float act_alpha;
  float act_limit;
} swy_activation_attrs;
SWY_SIZE(swy_activation_attrs, 16);
/* SIGMOID_SCALE_ADD r1. inputs: y, s [rows, width], g [rows, 1]. outputs: y + sigmoid(g) * s. No attributes. */

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* SWITCHYARD_OPS_H_ */
