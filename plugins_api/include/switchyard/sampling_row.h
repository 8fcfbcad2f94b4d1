// SPDX-License-Identifier: Apache-2.0
/* The reference sampler: the chain of sampling_math.h over one row, plainly, on one thread. It defines what every
 * faster sampler must return; see sampling_math.h for the rules. Nothing is allocated; thread-safe. */
#ifndef SWITCHYARD_SAMPLING_ROW_H_
#define SWITCHYARD_SAMPLING_ROW_H_

#include "switchyard/sampling_math.h"

/* One row. Arrays are borrowed for the call. */
typedef struct swy_sample_row_in {
  const float* logits; /* [vocab] */
  uint32_t vocab;      /* 1 to SWY_MAX_VOCAB */
  uint32_t bias_count;
  const swy_logit_bias* biases; /* [bias_count], ids strictly ascending; those beyond the vocabulary have no effect */
  const uint32_t* mask;         /* bit id % 32 of word id / 32 allows id; NULL: all allowed */
  const uint32_t* counts;       /* [vocab] SWY_SEEN_IN_PROMPT | times in output; NULL: none seen */
  uint64_t position;            /* index, in the sequence, of the token being drawn */
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

/* What steps 2 and 3 make of a live id's logit: adjusted, and scaled unless greedy. `in->logits` is not read. */
static inline float swy_row_value(const swy_sample_params* p, const swy_sample_row_in* in, uint32_t id, float logit) {
  float bias = 0.0f;
  uint32_t lo = 0, hi = in->bias_count;
  while (lo < hi) {
    const uint32_t middle = lo + (hi - lo) / 2;
    if (in->biases[middle].id < id) {
      lo = middle + 1;
    } else {
      hi = middle;
    }
  }
  if (lo < in->bias_count && in->biases[lo].id == id) bias = in->biases[lo].bias;
  const float y = swy_adjust(p, logit, in->counts ? in->counts[id] : 0u, bias);
  return p->inv_temperature == 0.0f ? y : swy_scale(p, y);
}

static inline float swy_row_logit(const swy_sample_params* p, const swy_sample_row_in* in, uint32_t id) {
  return swy_row_value(p, in, id, in->logits[id]);
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

/* The highest clamped logit of a row without bad logits, and the sum of its swy_logprob_weight. */
static inline uint64_t swy_row_logprob_total(const float* logits, uint32_t vocab, float* max) {
  uint64_t total = 0;
  *max = -0x1p100f;
  for (uint32_t i = 0; i < vocab; ++i) {
    const float x = swy_clamp(logits[i]);
    *max = x > *max ? x : *max;
  }
  for (uint32_t i = 0; i < vocab; ++i) {
    if (swy_float_bits(logits[i]) != SWY_BITS_NEG_INF)
      total += swy_logprob_weight(swy_add(swy_clamp(logits[i]), -*max));
  }
  return total;
}

static inline int swy_row_argument_ok(const swy_sample_params* p, const swy_sample_row_in* in,
                                      const uint64_t* workspace) {
  return in->logits && workspace && in->vocab != 0u && in->vocab <= SWY_MAX_VOCAB &&
         (p->flags & SWY_SAMPLE_NORMALISED) && (in->bias_count == 0u || in->biases);
}

/* Steps 0 to 3: the order keys of the live ids, in order of id. Returns SWY_SAMPLE_OK or why not. */
static inline int32_t swy_row_keys(const swy_sample_params* p, const swy_sample_row_in* in, uint64_t* keys, uint32_t* n,
                                   int32_t* bad_id) {
  *n = 0;
  for (uint32_t id = 0; id < in->vocab; ++id) {
    if (swy_is_bad_logit(in->logits[id])) {
      *bad_id = (int32_t)id;
      return SWY_SAMPLE_BAD_LOGIT;
    }
    if (swy_row_is_live(in, id)) keys[(*n)++] = swy_order_key(swy_float_key(swy_row_logit(p, in, id)), id);
  }
  return *n == 0u ? SWY_SAMPLE_NO_TOKEN : SWY_SAMPLE_OK;
}

/* Draws one token. `workspace` holds `vocab` elements. Returns SWY_SAMPLE_OK or why not; *out is always written. */
static inline int32_t swy_sample_row(const swy_sample_params* p, const swy_sample_row_in* in, uint64_t* workspace,
                                     swy_sample_row_out* out) {
  out->token = out->id = -1;
  out->logprob = 0.0f;
  if (!swy_row_argument_ok(p, in, workspace)) return SWY_SAMPLE_BAD_ARGUMENT;
  uint32_t n = 0;
  const int32_t status = swy_row_keys(p, in, workspace, &n, &out->id);
  if (status != SWY_SAMPLE_OK) return status;
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
  if (p->flags & SWY_SAMPLE_LOGPROB) {
    float max;
    const uint64_t total = swy_row_logprob_total(in->logits, in->vocab, &max);
    out->logprob = swy_logprob(in->logits[out->token], max, total);
  }
  return SWY_SAMPLE_OK;
}

/* The n most likely ids of the model's own distribution, best first (ties to the lowest id), and their
 * log-probabilities; id -1 and 0 where fewer ids have a logit above -inf. For a row without bad logits. */
static inline void swy_row_top_logprobs(const float* logits, uint32_t vocab, uint32_t n, uint64_t* workspace,
                                        int32_t* ids, float* logprobs) {
  uint32_t live = 0;
  float max;
  const uint64_t total = swy_row_logprob_total(logits, vocab, &max);
  for (uint32_t id = 0; id < vocab; ++id) {
    if (swy_float_bits(logits[id]) != SWY_BITS_NEG_INF) {
      workspace[live++] = swy_order_key(swy_float_key(swy_clamp(logits[id])), id);
    }
  }
  swy_row_sort(workspace, live);
  for (uint32_t i = 0; i < n; ++i) {
    ids[i] = i < live ? (int32_t)swy_row_key_id(workspace[i]) : -1;
    logprobs[i] = i < live ? swy_logprob(logits[ids[i]], max, total) : 0.0f;
  }
}

/* TOP_CANDIDATES for one row: `ids` and `logits` (as they came, unmodified) hold k elements, `workspace` vocab. */
static inline void swy_row_candidates(const swy_sample_params* p, const swy_sample_row_in* in, uint32_t k,
                                      uint64_t* workspace, int32_t* ids, float* logits, swy_candidates_result* out) {
  uint32_t n = 0;
  memset(out, 0, sizeof *out);
  out->id = -1;
  out->status =
      swy_row_argument_ok(p, in, workspace) ? swy_row_keys(p, in, workspace, &n, &out->id) : SWY_SAMPLE_BAD_ARGUMENT;
  out->live = out->status == SWY_SAMPLE_OK ? n : 0u;
  if (out->live > 0u) swy_row_sort(workspace, n);
  for (uint32_t i = 0; i < k; ++i) {
    ids[i] = i < out->live ? (int32_t)swy_row_key_id(workspace[i]) : -1;
    logits[i] = i < out->live ? in->logits[ids[i]] : 0.0f;
  }
  if (out->live == 0u) return;
  if (p->flags & SWY_SAMPLE_LOGPROB) out->logprob_total = swy_row_logprob_total(in->logits, in->vocab, &out->max_logit);
  if (p->inv_temperature == 0.0f) return;
  const float max = swy_row_logit(p, in, (uint32_t)ids[0]);
  for (uint32_t i = 0; i < n; ++i) {
    out->total += swy_weight(swy_add(swy_row_logit(p, in, swy_row_key_id(workspace[i])), -max));
  }
}

#endif /* SWITCHYARD_SAMPLING_ROW_H_ */
