// SPDX-License-Identifier: Apache-2.0
/* Sampling, to the bit: how one row of logits becomes one token, on every device.
 *
 * Normative. Given the same fp32 logits, an implementation that follows this header picks the same token, because
 *  - every fp32 step is one separately rounded multiply or add (round to nearest, ties to even); there is no division,
 *    no library function, and no sum of floats whose order could differ: weights are summed as integers;
 *  - floats are ordered by monotone integer keys, and every tie goes to the lowest id;
 *  - no intermediate is subnormal, infinite or minus zero where it could matter (`swy_clamp`), so a device that flushes
 *    subnormals agrees.
 * Noise depends on (seed, position, token id) only, so it can be drawn in any order and for the surviving ids alone.
 *
 * Plain C11 and C++20, nothing else of ours included, nothing allocated, thread-safe. For CUDA the default SWY_FN is
 * `static __host__ __device__ inline`; define SWY_FN before including to choose another prefix.
 *
 * Required of the compiler: -ffp-contract=off (GCC ignores the STDC FP_CONTRACT pragma), no -ffast-math, SSE or better.
 * What the preprocessor can see is refused below; `swy_sampling_self_check()` detects the rest at run time.
 *
 * sampling_row.h is the chain below as a scalar reference for one row; this file is the arithmetic that all share.
 *
 * The chain for one row, in this order. "Live" ids are those not yet removed.
 *  0. A NaN or +inf logit anywhere in the row, masked or not: SWY_SAMPLE_BAD_LOGIT, and the lowest such id.
 *  1. mask: an id is live if its mask bit is set (no mask: always) and its logit is not -inf.
 *     No live id: SWY_SAMPLE_NO_TOKEN.
 *  2. `swy_adjust`: repetition penalty (ids seen in prompt or output; a positive logit times the host's reciprocal, any
 *     other times the penalty), minus frequency times count, minus presence (output ids), plus bias.
 *  3. temperature 0 (or below 1e-5): the live id with the highest adjusted logit; steps 4 to 8 are not run.
 *     Else z = `swy_scale`: times the host's reciprocal.
 *  4. top-k: the k first in (z descending, id ascending).
 *  5. weights `swy_weight(z - max)`: floor(exp * 2^30), where max is the highest live z.
 *  6. top-p: P = round(p * 2^15), at least 1; P = 2^15 is off. The shortest prefix in (weight descending, id ascending)
 *     with sum * 2^15 >= P * total, where total is over the ids that top-k kept.
 *  7. min-p: ids with weight >= ceil(min_p * 2^30).
 *  8. the highest z + `swy_gumbel(seed, position, id)`; lowest id on a tie.
 * Log-probability, on request: of the drawn token in the model's own distribution, ln softmax of the unmodified logits
 * (before mask, penalties, bias and temperature), as serving APIs report it.
 */
#ifndef SWITCHYARD_SAMPLING_MATH_H_
#define SWITCHYARD_SAMPLING_MATH_H_

#include <assert.h>
#include <float.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__FAST_MATH__)
#error "sampling_math.h needs exact fp32 rounding: compile without -ffast-math"
#endif
#if defined(FLT_EVAL_METHOD) && (FLT_EVAL_METHOD == 1 || FLT_EVAL_METHOD == 2)
#error "sampling_math.h needs fp32 arithmetic in fp32: compile with -mfpmath=sse"
#endif

#ifndef SWY_FN
#if defined(__CUDACC__)
#define SWY_FN static __host__ __device__ inline
#else
#define SWY_FN static inline
#endif
#endif

/* ---- fp32 building blocks ---------------------------------------------------------------------------------------- */

SWY_FN float swy_mul(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b); /* never contracted */
#else
  return a * b;
#endif
}

SWY_FN float swy_add(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

SWY_FN uint32_t swy_float_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

SWY_FN float swy_bits_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

#define SWY_BITS_POS_INF 0x7f800000u
#define SWY_BITS_NEG_INF 0xff800000u

/* NaN or +inf: the row is refused. */
SWY_FN int swy_is_bad_logit(float x) {
  const uint32_t bits = swy_float_bits(x);
  return bits == SWY_BITS_POS_INF || (bits & 0x7fffffffu) > SWY_BITS_POS_INF;
}

/* Magnitudes below 2^-100 become +0, those above 2^100 (infinity too) become 2^100 with their sign. Products and sums
 * of clamped values never meet a subnormal, so flushing them or not cannot be seen. x is not NaN. */
SWY_FN float swy_clamp(float x) {
  const uint32_t bits = swy_float_bits(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t big = magnitude > 0x71800000u ? (bits & 0x80000000u) | 0x71800000u : bits;
  return swy_bits_float(magnitude < 0x0d800000u ? 0u : big);
}

/* Monotone: a < b exactly when key(a) < key(b), for clamped values. */
SWY_FN uint32_t swy_float_key(float x) {
  const uint32_t bits = swy_float_bits(x);
  return (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
}

/* Sorts by (float descending, id ascending) when sorted descending. */
SWY_FN uint64_t swy_order_key(uint32_t rank, uint32_t id) { return ((uint64_t)rank << 32) | (uint32_t)~id; }

SWY_FN int swy_leading_zeros(uint64_t x) { /* x is not 0 */
  int n = 0;
  if (!(x >> 32)) n += 32, x <<= 32;
  if (!(x >> 48)) n += 16, x <<= 16;
  if (!(x >> 56)) n += 8, x <<= 8;
  if (!(x >> 60)) n += 4, x <<= 4;
  if (!(x >> 62)) n += 2, x <<= 2;
  return n + !(x >> 63);
}

/* r * 2^-64, cut (not rounded) to 24 significant bits. r is not 0. */
SWY_FN float swy_unit(uint64_t r) {
  const int zeros = swy_leading_zeros(r);
  return swy_bits_float(((uint32_t)(126 - zeros) << 23) | ((uint32_t)((r << zeros) >> 40) & 0x007fffffu));
}

/* log(1 + f) + exponent * ln 2 for f in [sqrt(1/2) - 1, sqrt(2) - 1]: f - f^2/2 + f^3 P(f), P a minimax polynomial. */
SWY_FN float swy_log_core(float f, int32_t exponent) {
  const float e = (float)exponent;
  const float s = swy_mul(f, f);
  float p = -0x1.422b48p-4f;
  p = swy_add(swy_mul(p, f), 0x1.07c41ep-3f);
  p = swy_add(swy_mul(p, f), -0x1.0cce58p-3f);
  p = swy_add(swy_mul(p, f), 0x1.226f7cp-3f);
  p = swy_add(swy_mul(p, f), -0x1.547ab8p-3f);
  p = swy_add(swy_mul(p, f), 0x1.99a592p-3f);
  p = swy_add(swy_mul(p, f), -0x1.000216p-2f);
  p = swy_add(swy_mul(p, f), 0x1.55554ap-2f);
  p = swy_mul(swy_mul(f, s), p);
  p = swy_add(p, swy_mul(e, -0x1.bd0106p-13f)); /* ln 2 less its 9-bit head, which times e is exact */
  p = swy_add(p, swy_mul(s, -0.5f));
  return swy_add(swy_add(f, p), swy_mul(e, 0x1.63p-1f));
}

/* ln(x * 2^shift), x positive and normal. Within 2e-7 relative, or 1e-7 absolute near x = 1. */
SWY_FN float swy_log(float x, int32_t shift) {
  const uint32_t bits = swy_float_bits(x);
  const int32_t e =
      (int32_t)((bits + (0x3f800000u - 0x3f3504f3u)) >> 23) - 127; /* x = m 2^e, m in [sqrt(1/2), sqrt 2) */
  const float m = swy_bits_float(bits - ((uint32_t)e << 23));
  return swy_log_core(swy_add(m, -1.0f), e + shift);
}

/* e^x for x <= 0, within 2e-7 relative; exactly 1 at 0, never above 1; 0 below -80. */
SWY_FN float swy_exp(float x) {
  const float t = x < -80.0f ? -80.0f : x;
  const int32_t n = (int32_t)swy_add(swy_mul(t, 0x1.715476p0f), -0.5f); /* towards zero: the nearest integer */
  const float k = (float)n;
  const float r = swy_add(swy_add(t, swy_mul(k, -0x1.63p-1f)), swy_mul(k, 0x1.bd0106p-13f));
  float p = 0x1.6db3e0p-10f;
  p = swy_add(swy_mul(p, r), 0x1.123b4ep-7f);
  p = swy_add(swy_mul(p, r), 0x1.55545ep-5f);
  p = swy_add(swy_mul(p, r), 0x1.555490p-3f);
  p = swy_add(swy_mul(p, r), 0.5f);
  p = swy_add(swy_add(r, swy_mul(swy_mul(r, r), p)), 1.0f);
  const uint32_t keep = 0u - (uint32_t)(x >= -80.0f); /* no branch: loops over rows are vectorised */
  return swy_bits_float(swy_float_bits(swy_mul(p, swy_bits_float((uint32_t)(n + 127) << 23))) & keep);
}

/* floor(e^d * 2^30) for d <= 0: what top-p and min-p weigh ids by. 0 below -20.8; never falls as d rises. */
SWY_FN uint32_t swy_weight(float d) { return (uint32_t)(int32_t)swy_mul(swy_exp(d), 1073741824.0f); }

/* ---- noise ------------------------------------------------------------------------------------------------------- */

/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). */
SWY_FN void swy_philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  uint32_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = (uint64_t)0xD2511F53u * c0;
    const uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* The 64 random bits of one (seed, position, id): words 0 (high) and 1 (low), with the lowest bit set so that u is
 * never 0. u = r * 2^-64 keeps 24 significant bits however small it is, and so does 1 - u. */
SWY_FN uint64_t swy_random_bits(uint64_t seed, uint64_t position, uint32_t id) {
  const uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), id, 0u};
  const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  uint32_t out[4];
  swy_philox4x32_10(counter, key, out);
  return ((uint64_t)out[0] << 32) | out[1] | 1u;
}

/* E = -log1p(-u): exponentially distributed. r is odd. */
SWY_FN float swy_exponential(uint64_t r) {
  return r >> 62 ? -swy_log(swy_unit(~r + 1u), 0) : -swy_log_core(-swy_unit(r), 0);
}

#define SWY_GUMBEL_MAX 44.5f /* above every value of swy_gumbel, which ends at 64 ln 2 */

/* g = -log(E): what is added to z. */
SWY_FN float swy_gumbel(uint64_t seed, uint64_t position, uint32_t id) {
  return -swy_log(swy_exponential(swy_random_bits(seed, position, id)), 0);
}

/* What sampling a row ends in. */
#define SWY_SAMPLE_OK 0
#define SWY_SAMPLE_BAD_LOGIT 1    /* a NaN or +inf logit */
#define SWY_SAMPLE_NO_TOKEN 2     /* every id is masked or -inf */
#define SWY_SAMPLE_BAD_ARGUMENT 3 /* no logits, no ids, too many, parameters not normalised, or no workspace */

/* ---- parameters -------------------------------------------------------------------------------------------------- */

#define SWY_SAMPLE_LOGPROB 1u             /* flags: also compute the token's log-probability */
#define SWY_SAMPLE_NORMALISED 0x80000000u /* flags: set by swy_sample_params_normalise */

#define SWY_TOP_P_OFF 32768u
#define SWY_SEEN_IN_PROMPT 0x80000000u /* counts[id]: this bit, and the number of times in the output below it */
#define SWY_MAX_COUNT 16777216u        /* counts stop here, and those above weigh as this: exact in fp32 */
#define SWY_MAX_VOCAB 16777216u

/* How one sequence is sampled. The caller fills in the parameters (after swy_sample_params_init) and normalises;
 * devices read the normalised part only. */
typedef struct swy_sample_params {
  uint32_t struct_size; /* sizeof(swy_sample_params) of whoever filled it */
  uint32_t flags;
  uint64_t seed;
  float temperature;        /* 0 or more, finite; below 1e-5 is greedy */
  float top_p;              /* above 0, at most 1 (off) */
  float min_p;              /* 0 (off) to 1 */
  int32_t top_k;            /* 0 (off) or more */
  float repetition_penalty; /* above 0, finite; 1 is off */
  float presence_penalty;   /* -2 to 2 */
  float frequency_penalty;  /* -2 to 2 */
  /* Normalised, by the host alone: */
  float inv_temperature; /* 1 / temperature, at least 2^-60; 0 means greedy */
  float repetition;      /* repetition_penalty within [2^-20, 2^20] */
  float inv_repetition;  /* 1 / repetition */
  float presence;        /* presence_penalty, clamped as swy_clamp does */
  float frequency;       /* frequency_penalty, likewise */
  uint32_t top_p_q15;    /* round(top_p * 2^15), at least 1 */
  uint32_t min_p_q30;    /* ceil(min_p * 2^30) */
} swy_sample_params;

static_assert(offsetof(swy_sample_params, seed) == 8, "layout");
static_assert(offsetof(swy_sample_params, temperature) == 16, "layout");
static_assert(offsetof(swy_sample_params, top_p) == 20, "layout");
static_assert(offsetof(swy_sample_params, min_p) == 24, "layout");
static_assert(offsetof(swy_sample_params, top_k) == 28, "layout");
static_assert(offsetof(swy_sample_params, repetition_penalty) == 32, "layout");
static_assert(offsetof(swy_sample_params, presence_penalty) == 36, "layout");
static_assert(offsetof(swy_sample_params, frequency_penalty) == 40, "layout");
static_assert(offsetof(swy_sample_params, inv_temperature) == 44, "layout");
static_assert(offsetof(swy_sample_params, repetition) == 48, "layout");
static_assert(offsetof(swy_sample_params, inv_repetition) == 52, "layout");
static_assert(offsetof(swy_sample_params, presence) == 56, "layout");
static_assert(offsetof(swy_sample_params, frequency) == 60, "layout");
static_assert(offsetof(swy_sample_params, top_p_q15) == 64, "layout");
static_assert(offsetof(swy_sample_params, min_p_q30) == 68, "layout");
static_assert(sizeof(swy_sample_params) == 72, "layout");

/* Added to the logit of one id, after the penalties. */
typedef struct swy_logit_bias {
  uint32_t id;
  float bias; /* finite */
} swy_logit_bias;

static_assert(sizeof(swy_logit_bias) == 8, "layout");

/* Which parameter was refused: static strings, for an error line "FIELD is VALUE; it must be RANGE". */
typedef struct swy_sample_fault {
  const char* field;
  const char* range;
  double value;
} swy_sample_fault;

/* Neutral: temperature 1, nothing truncated, no penalties, seed 0. */
static inline void swy_sample_params_init(swy_sample_params* p) {
  memset(p, 0, sizeof *p);
  p->struct_size = (uint32_t)sizeof *p;
  p->temperature = p->top_p = p->repetition_penalty = 1.0f;
}

/* The first parameter out of range, or field NULL. */
static inline swy_sample_fault swy_sample_params_check(const swy_sample_params* p) {
  const swy_sample_fault none = {NULL, NULL, 0.0};
  const struct {
    swy_sample_fault fault;
    int in_range; /* false for NaN */
  } checks[] = {
      {{"temperature", "0 (greedy) or more, and finite", p->temperature},
       p->temperature >= 0.0f && p->temperature <= FLT_MAX},
      {{"top_p", "above 0 and at most 1", p->top_p}, p->top_p > 0.0f && p->top_p <= 1.0f},
      {{"top_k", "0 (off) or more", (double)p->top_k}, p->top_k >= 0},
      {{"min_p", "from 0 to 1", p->min_p}, p->min_p >= 0.0f && p->min_p <= 1.0f},
      {{"repetition_penalty", "above 0 and finite", p->repetition_penalty},
       p->repetition_penalty > 0.0f && p->repetition_penalty <= FLT_MAX},
      {{"presence_penalty", "from -2 to 2", p->presence_penalty},
       p->presence_penalty >= -2.0f && p->presence_penalty <= 2.0f},
      {{"frequency_penalty", "from -2 to 2", p->frequency_penalty},
       p->frequency_penalty >= -2.0f && p->frequency_penalty <= 2.0f},
  };
  for (size_t i = 0; i < sizeof checks / sizeof checks[0]; ++i) {
    if (!checks[i].in_range) return checks[i].fault;
  }
  return none;
}

/* Checks the ranges and computes the normalised part; host only. Returns 1, or 0 with the first fault in *fault (may be
 * NULL) and p unchanged. */
static inline int swy_sample_params_normalise(swy_sample_params* p, swy_sample_fault* fault) {
  const swy_sample_fault found = swy_sample_params_check(p);
  if (fault) *fault = found;
  if (found.field) return 0;
  const int greedy = p->temperature < 1e-5f;
  const float inv = greedy ? 0.0f : 1.0f / p->temperature;
  float repetition = p->repetition_penalty;
  repetition = repetition < 0x1p-20f ? 0x1p-20f : repetition > 0x1p20f ? 0x1p20f : repetition;
  /* NOLINTNEXTLINE(bugprone-incorrect-roundings): a float times a power of two is exact in a double */
  const uint32_t q15 = (uint32_t)((double)p->top_p * 32768.0 + 0.5);
  const double q30 = (double)p->min_p * 1073741824.0;
  const uint32_t q30_floor = (uint32_t)q30;
  p->inv_temperature = greedy || inv > 0x1p-60f ? inv : 0x1p-60f;
  p->repetition = repetition;
  p->inv_repetition = 1.0f / repetition;
  p->presence = swy_clamp(p->presence_penalty);
  p->frequency = swy_clamp(p->frequency_penalty);
  p->top_p_q15 = q15 < 1u ? 1u : q15;
  p->min_p_q30 = q30_floor + ((double)q30_floor < q30 ? 1u : 0u);
  p->flags |= SWY_SAMPLE_NORMALISED;
  return 1;
}

/* Steps 2 and 3 for one live id. `count` is its word of the counts (0: never seen), `bias` its logit bias. */
SWY_FN float swy_adjust(const swy_sample_params* p, float logit, uint32_t count, float bias) {
  float y = swy_clamp(logit);
  uint32_t output = count & ~SWY_SEEN_IN_PROMPT;
  if (count != 0u) y = swy_clamp(swy_mul(y, y > 0.0f ? p->inv_repetition : p->repetition));
  if (output != 0u) {
    output = output > SWY_MAX_COUNT ? SWY_MAX_COUNT : output;
    y = swy_add(y, -swy_mul(p->frequency, (float)output));
    y = swy_clamp(swy_add(y, -p->presence));
  }
  return swy_clamp(swy_add(y, swy_clamp(bias)));
}

SWY_FN float swy_scale(const swy_sample_params* p, float adjusted) {
  return swy_clamp(swy_mul(adjusted, p->inv_temperature));
}

/* The least sum of weights that satisfies sum * 2^15 >= top_p_q15 * total, without overflow. */
SWY_FN uint64_t swy_top_p_need(const swy_sample_params* p, uint64_t total) {
  return (total >> 15) * p->top_p_q15 + (((total & 32767u) * p->top_p_q15 + 32767u) >> 15);
}

/* The word of the counts of an id after it was drawn once more. */
SWY_FN uint32_t swy_count_output(uint32_t word) {
  return (word & ~SWY_SEEN_IN_PROMPT) < SWY_MAX_COUNT ? word + 1u : word;
}

/* ---- log-probability --------------------------------------------------------------------------------------------- */

/* floor(e^d * 2^40) for d <= 0. Summed over the row as integers, d = clamp(logit) - max; a -inf logit adds nothing. */
SWY_FN uint64_t swy_logprob_weight(float d) { return (uint64_t)(int64_t)swy_mul(swy_exp(d), 1099511627776.0f); }

/* ln softmax of one logit, from the row's highest clamped logit and the sum of its swy_logprob_weight. */
SWY_FN float swy_logprob(float logit, float max, uint64_t total) {
  return swy_add(swy_add(swy_clamp(logit), -max), -swy_log(swy_unit(total), 24));
}

/* ---- candidates -------------------------------------------------------------------------------------------------- */

/* What TOP_CANDIDATES tells of one row, beside its k best ids: enough to finish most draws without the row. The best k
 * are the first in (z descending, id ascending) among the live ids, z being the result of steps 0 to 3. */
typedef struct swy_candidates_result {
  int32_t status;         /* SWY_SAMPLE_OK, _BAD_LOGIT or _NO_TOKEN, as swy_sample_row would return */
  int32_t id;             /* the offending id of _BAD_LOGIT, or -1 */
  uint32_t live;          /* live ids; of them min(live, k) are listed, the other places hold id -1 and logit 0 */
  float max_logit;        /* highest clamped logit of the whole row, with SWY_SAMPLE_LOGPROB; else 0 */
  uint64_t total;         /* sum of swy_weight(z - highest z) over all live ids; 0 when greedy */
  uint64_t logprob_total; /* sum of swy_logprob_weight over the whole row, with SWY_SAMPLE_LOGPROB; else 0 */
} swy_candidates_result;

static_assert(offsetof(swy_candidates_result, total) == 16, "layout");
static_assert(sizeof(swy_candidates_result) == 32, "layout");

/* ---- self-check -------------------------------------------------------------------------------------------------- */

/* FNV-1a over 256 noises, powers and adjusted logits. It differs from SWY_SELF_CHECK_HASH when the compiler contracted
 * a multiply and an add, reordered, kept extra precision or rounds differently. For device code too. */
SWY_FN uint64_t swy_sampling_self_hash(void) {
  volatile uint32_t start = 0; /* so that nothing is computed at compile time */
  uint64_t hash = 14695981039346656037u;
  swy_sample_params p;
  memset(&p, 0, sizeof p);
  p.inv_temperature = 0x1.6db6dcp0f;
  p.repetition = 0x1.4ccccdp0f;
  p.inv_repetition = 0x1.89d89ep-1f;
  p.presence = 0x1.333334p-2f;
  p.frequency = 0x1.666666p-1f;
  for (uint32_t i = start; i < 256u; ++i) {
    const float logit = swy_mul((float)((int32_t)i - 128), 0x1.7ae148p-2f);
    const float values[3] = {swy_gumbel(i * 0x9E3779B97F4A7C15u, i, i * 7u),
                             swy_exp(swy_mul((float)i, -0x1.c28f5cp-4f)),
                             swy_scale(&p, swy_adjust(&p, logit, i % 7u, 0x1.c28f5cp-4f))};
    for (int j = 0; j < 3; ++j) hash = (hash ^ swy_float_bits(values[j])) * 1099511628211u;
  }
  return hash;
}

#define SWY_SELF_CHECK_HASH 0x2d068596b7370a26u

/* 1 when this compilation reproduces the normative bits. Call it once before trusting a build: a backend that samples,
 * when a device is opened. */
SWY_FN int swy_sampling_self_check(void) { return swy_sampling_self_hash() == SWY_SELF_CHECK_HASH; }

#endif /* SWITCHYARD_SAMPLING_MATH_H_ */
