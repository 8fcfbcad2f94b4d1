/* The reference sampler: the chain of sampling_math.h over one row, plainly, on one thread. It defines what every
 * faster sampler must return; see sampling_math.h for the rules. Nothing is allocated; thread-safe. */
#ifndef SWITCHYARD_SAMPLING_ROW_H_
#define SWITCHYARD_SAMPLING_ROW_H_

#include "switchyard/sampling_math.h"

#define SWY_SELF_CHECK_HASH 0u /* FNV-1a over noise and powers, as computed below */

/* What swy_sample_row returns. */
#define SWY_SAMPLE_OK 0
#define SWY_SAMPLE_BAD_LOGIT 1    /* a NaN or +inf logit: out->id is the lowest such id */
#define SWY_SAMPLE_NO_TOKEN 2     /* every id is masked or -inf */
#define SWY_SAMPLE_BAD_ARGUMENT 3 /* no logits, no ids, too many, parameters not normalised, or no workspace */

/* One row. Arrays are borrowed for the call. */
typedef struct swy_sample_row_in {
  const float* logits; /* [vocab] */
  uint32_t vocab;      /* 1 to SWY_MAX_VOCAB */
  uint32_t bias_count;
  const uint32_t* bias_ids; /* [bias_count], strictly ascending; ids beyond the vocabulary have no effect */
  const float* bias_values; /* [bias_count], finite */
  const uint32_t* mask;     /* bit id % 32 of word id / 32 allows id; NULL: all allowed */
  const uint32_t* counts;   /* [vocab] SWY_SEEN_IN_PROMPT | times in output; NULL: none seen */
  uint64_t position;        /* index, in the sequence, of the token being drawn */
} swy_sample_row_in;

typedef struct swy_sample_row_out {
  int32_t token; /* the drawn id, or -1 */
  int32_t id;    /* the offending id of SWY_SAMPLE_BAD_LOGIT, or -1 */
  float logprob; /* with SWY_SAMPLE_LOGPROB, else 0 */
} swy_sample_row_out;

static inline int swy_row_is_live(const swy_sample_row_in* in, uint32_t id) {
  const int allowed = !in->mask || ((in->mask[id / 32] >> (id % 32)) & 1u);
  return allowed && swy_float_bits(in->logits[id]) != SWY_BITS_NEG_INF;
}

/* The adjusted logit of one live id, scaled unless greedy. */
static inline float swy_row_logit(const swy_sample_params* p, const swy_sample_row_in* in, uint32_t id) {
  float bias = 0.0f;
  uint32_t lo = 0, hi = in->bias_count;
  while (lo < hi) {
    const uint32_t middle = lo + (hi - lo) / 2;
    if (in->bias_ids[middle] < id) {
      lo = middle + 1;
    } else {
      hi = middle;
    }
  }
  if (lo < in->bias_count && in->bias_ids[lo] == id) bias = in->bias_values[lo];
  const float y = swy_adjust(p, in->logits[id], in->counts ? in->counts[id] : 0u, bias);
  return p->inv_temperature == 0.0f ? y : swy_scale(p, y);
}

static inline void swy_row_sift_down(uint64_t* keys, uint32_t root, uint32_t n) {
  for (uint32_t child; (child = 2 * root + 1) < n; root = child) {
    if (child + 1 < n && keys[child + 1] < keys[child]) ++child;
    if (keys[root] <= keys[child]) return;
    const uint64_t swapped = keys[root];
    keys[root] = keys[child];
    keys[child] = swapped;
  }
}

/* Heapsort, descending. */
static inline void swy_row_sort(uint64_t* keys, uint32_t n) {
  for (uint32_t i = n / 2; i-- > 0;) swy_row_sift_down(keys, i, n);
  for (uint32_t end = n; end-- > 1;) {
    const uint64_t least = keys[0];
    keys[0] = keys[end];
    keys[end] = least;
    swy_row_sift_down(keys, 0, end);
  }
}

static inline uint32_t swy_row_key_id(uint64_t key) { return ~(uint32_t)key; }

/* Top-p over keys sorted by (weight, id): how many are kept. */
static inline uint32_t swy_row_top_p(const swy_sample_params* p, const uint64_t* keys, uint32_t n) {
  uint64_t total = 0, sum = 0;
  for (uint32_t i = 0; i < n; ++i) total += keys[i] >> 32;
  const uint64_t need = swy_top_p_need(p, total);
  uint32_t kept = 0;
  while (sum < need) sum += keys[kept++] >> 32;
  return kept;
}

/* Steps 4 to 7 over the order keys of all live ids: how many stay, at the front of `keys`. */
static inline uint32_t swy_row_truncate(const swy_sample_params* p, const swy_sample_row_in* in, uint64_t* keys,
                                        uint32_t n) {
  swy_row_sort(keys, n);
  if (p->top_k > 0 && (uint32_t)p->top_k < n) n = (uint32_t)p->top_k;
  if (p->top_p_q15 >= SWY_TOP_P_OFF && p->min_p_q30 == 0u) return n;
  const float max = swy_row_logit(p, in, swy_row_key_id(keys[0]));
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t id = swy_row_key_id(keys[i]);
    keys[i] = swy_order_key(swy_weight(swy_add(swy_row_logit(p, in, id), -max)), id);
  }
  swy_row_sort(keys, n);
  if (p->top_p_q15 < SWY_TOP_P_OFF) n = swy_row_top_p(p, keys, n);
  while (keys[n - 1] >> 32 < p->min_p_q30) --n; /* stops: the first weight is 2^30 */
  return n;
}

/* ln softmax of logits[id] over the whole row; the row holds no bad logit and logits[id] is not -inf. */
static inline float swy_row_logprob(const float* logits, uint32_t vocab, uint32_t id) {
  float max = swy_clamp(logits[id]);
  uint64_t total = 0;
  for (uint32_t i = 0; i < vocab; ++i) {
    const float x = swy_clamp(logits[i]);
    max = x > max ? x : max;
  }
  for (uint32_t i = 0; i < vocab; ++i) {
    if (swy_float_bits(logits[i]) != SWY_BITS_NEG_INF) {
      total += swy_logprob_weight(swy_add(swy_clamp(logits[i]), -max));
    }
  }
  return swy_logprob(logits[id], max, total);
}

/* Draws one token. `workspace` holds `vocab` elements. Returns SWY_SAMPLE_OK or why not; *out is always written. */
static inline int32_t swy_sample_row(const swy_sample_params* p, const swy_sample_row_in* in, uint64_t* workspace,
                                     swy_sample_row_out* out) {
  out->token = out->id = -1;
  out->logprob = 0.0f;
  if (!in->logits || !workspace || in->vocab == 0u || in->vocab > SWY_MAX_VOCAB ||
      !(p->flags & SWY_SAMPLE_NORMALISED) || (in->bias_count > 0u && (!in->bias_ids || !in->bias_values))) {
    return SWY_SAMPLE_BAD_ARGUMENT;
  }
  uint32_t n = 0;
  for (uint32_t id = 0; id < in->vocab; ++id) {
    if (swy_is_bad_logit(in->logits[id])) {
      out->id = (int32_t)id;
      return SWY_SAMPLE_BAD_LOGIT;
    }
    if (swy_row_is_live(in, id)) workspace[n++] = swy_order_key(swy_float_key(swy_row_logit(p, in, id)), id);
  }
  if (n == 0u) return SWY_SAMPLE_NO_TOKEN;
  const int greedy = p->inv_temperature == 0.0f;
  if (!greedy) n = swy_row_truncate(p, in, workspace, n);
  uint64_t best = 0;
  for (uint32_t i = 0; i < n; ++i) {
    uint64_t key = workspace[i];
    if (!greedy) {
      const uint32_t id = swy_row_key_id(key);
      key = swy_order_key(swy_float_key(swy_add(swy_row_logit(p, in, id), swy_gumbel(p->seed, in->position, id))), id);
    }
    best = key > best ? key : best;
  }
  out->token = (int32_t)swy_row_key_id(best);
  if (p->flags & SWY_SAMPLE_LOGPROB) out->logprob = swy_row_logprob(in->logits, in->vocab, (uint32_t)out->token);
  return SWY_SAMPLE_OK;
}

/* 1 when this compilation reproduces the normative bits; 0 when the compiler contracted a multiply and an add, kept
 * extra precision or rounds differently. Call once before trusting a build (a backend, at negotiation). */
static inline int swy_sampling_self_check(void) {
  volatile uint32_t start = 0; /* so that nothing is computed at compile time */
  uint64_t hash = 14695981039346656037u;
  for (uint32_t i = start; i < 256u; ++i) {
    const float noise = swy_gumbel(i * 0x9E3779B97F4A7C15u, i, i * 7u);
    const float power = swy_exp((float)i * -0.11f);
    hash = (hash ^ swy_float_bits(noise)) * 1099511628211u;
    hash = (hash ^ swy_float_bits(power)) * 1099511628211u;
  }
  return hash == SWY_SELF_CHECK_HASH;
}

#endif /* SWITCHYARD_SAMPLING_ROW_H_ */
