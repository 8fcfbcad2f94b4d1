// SPDX-License-Identifier: Apache-2.0
// Choosing tokens from logits: code that SAMPLE and LM_HEAD_SAMPLE share. The arithmetic is that of sampling_math.h.
#pragma once

#include "common/device_code.cuh"
#include "common/pin.cuh"
#include "host/kernels.h"

#pragma nv_diagnostic push
#pragma nv_diag_suppress 1046  // constants with more digits than a float holds
#include "switchyard/sampling_math.h"
#pragma nv_diagnostic pop

namespace gpu {

struct TeamPart;  // sampling_team.cuh
struct Sought;    // likewise

// Where sampling reads and writes. A part is the result of one block for its share of the vocabulary.
struct Draws {
  const float* logits;  // [logit rows, vocab]; for rows that are not simple
  uint32_t* counts;     // [slots, vocab], or null
  int32_t* tokens;      // the device's token buffer
  swy_sample_result* results;
  int32_t* top_ids;  // [sample rows, top], or null
  float* top_logprobs;
  uint64_t* best;  // [sample rows, parts]: the largest order key of token_only rows, 0: no live id
  uint32_t* bad;   // [sample rows, parts]: whether a logit is NaN or +inf
  // Memory of the teams of blocks that sample the other rows; see sampling_team.cuh.
  uint64_t* histograms;  // [teams, 3, digits]
  TeamPart* team_parts;  // [sample rows, team_blocks]
  uint64_t* likely;      // [sample rows, team_blocks, top]: the order keys of each block's most likely ids
  Sought* sought;        // [teams, 2, team_blocks]
  uint64_t* listed;      // [teams, 2, team_blocks, kListed]
  uint32_t* barriers;    // [teams]
  uint32_t vocab, top, parts, teams, team_blocks;
  uint32_t block_ids;  // of the vocabulary, for each block of a team
};

// One sampling row.
struct Draw {
  const swy_sample_slot* slot;
  const swy_sample_params* p;
  const uint32_t* mask;
  const swy_logit_bias* biases;
  const uint32_t* counts;
  bool greedy, truncated;
  bool token_only;  // nothing but the token is wanted
  bool simple;      // in addition, the largest key decides
};

__device__ inline Draw draw_of(const Draws& d, const swy_step* step, uint32_t i) {
  Draw r;
  r.slot = step_array<swy_sample_slot>(step, step->sample_at) + i;
  r.p = step_array<swy_sample_params>(step, step->sample_params_at + i * step->sample_params_size);
  r.mask = r.slot->mask_at == 0 ? nullptr : step_array<uint32_t>(step, r.slot->mask_at);
  r.biases = step_array<swy_logit_bias>(step, r.slot->bias_at);
  const bool counted = d.counts != nullptr && r.slot->counts_read_slot != SWY_NO_SLOT;
  r.counts = counted ? d.counts + uint64_t{r.slot->counts_read_slot} * d.vocab : nullptr;
  r.greedy = r.p->inv_temperature == 0.0f;
  r.truncated = !r.greedy && (r.p->top_k > 0 || r.p->top_p_q15 < SWY_TOP_P_OFF || r.p->min_p_q30 != 0);
  r.token_only = (r.p->flags & SWY_SAMPLE_LOGPROB) == 0 && d.top == 0;
  r.simple = r.token_only && !r.truncated;
  return r;
}

// A token_only row, as the kernels before `finish` search it for its largest key. Of a truncated row they find the
// largest adjusted logit, as if there was no temperature; from there truncated.cuh goes on.
__device__ inline Draw searched(Draw r) {
  r.greedy |= r.truncated;
  return r;
}

__device__ inline bool is_live(const Draw& r, uint32_t id, float logit) {
  const bool allowed = r.mask == nullptr || ((r.mask[id / 32] >> (id % 32)) & 1u) != 0;
  return allowed && swy_float_bits(logit) != SWY_BITS_NEG_INF;
}

// Whether penalties raise no logit.
__device__ inline bool never_raised(const Draw& r) {
  return r.counts == nullptr || (r.p->repetition >= 1 && r.p->frequency >= 0 && r.p->presence >= 0);
}

// Steps 2 and 3 of the chain; `word`: the id's of the counts.
__device__ inline float value_of(const Draw& r, uint32_t id, float logit, uint32_t word) {
  float bias = 0.0f;
  uint32_t lo = 0, hi = r.slot->bias_count;
  while (lo < hi) {
    const uint32_t middle = lo + (hi - lo) / 2;
    if (r.biases[middle].id < id) {
      lo = middle + 1;
    } else {
      hi = middle;
    }
  }
  if (lo < r.slot->bias_count && r.biases[lo].id == id) bias = r.biases[lo].bias;
  const float y = swy_adjust(r.p, logit, word, bias);
  return r.greedy ? y : swy_scale(r.p, y);
}
__device__ inline float value_of(const Draw& r, uint32_t id, float logit) {
  return value_of(r, id, logit, r.counts != nullptr ? r.counts[id] : 0u);
}

// The order key that the last step of the chain compares.
__device__ inline uint64_t noisy_key(uint64_t seed, uint64_t position, uint32_t id, float z) {
  return swy_order_key(swy_float_key(swy_add(z, swy_gumbel(seed, position, id))), id);
}
__device__ inline uint64_t final_key(const Draw& r, uint32_t id, float z) {
  return r.greedy ? swy_order_key(swy_float_key(z), id) : noisy_key(r.p->seed, r.slot->position, id, z);
}

// The inverse of swy_float_key.
__device__ inline float float_of_key(uint32_t key) {
  return swy_bits_float((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key);
}
// What an order key of a value consists of.
__device__ inline uint32_t id_of(uint64_t order_key) { return ~static_cast<uint32_t>(order_key); }
__device__ inline float value_in(uint64_t order_key) { return float_of_key(static_cast<uint32_t>(order_key >> 32)); }

// Whether a row's largest logit decides, so that most logits need no closer look.
__device__ inline bool largest_decides(const Draw& r) {
  return r.greedy && r.mask == nullptr && r.counts == nullptr && r.slot->bias_count == 0;
}
// Logits below this value have a smaller key than logit x; keys are compared after clamping.
__device__ inline float bound_of(float x) {
  if (x <= -0x1p100f) return -INFINITY;
  return fabsf(x) < 0x1p-100f ? -0x1p-100f : fminf(x, 0x1p100f);
}

// The largest over a warp; every lane gets it.
__device__ inline uint64_t warp_largest(uint64_t x) {
  const auto high = static_cast<uint32_t>(x >> 32), most = __reduce_max_sync(kAll, high);
  const uint32_t low = __reduce_max_sync(kAll, high == most ? static_cast<uint32_t>(x) : 0u);
  return uint64_t{most} << 32 | low;
}

// The running thread. Reductions compute from it where they write and read, in few instructions; else the compiler
// keeps such values in registers over a whole kernel.
__device__ inline uint32_t this_thread() {
  uint32_t thread = threadIdx.x;
  pin(thread);
  return thread;
}

// The largest over a block; every thread gets it. `scratch`: 32 elements of shared memory.
__device__ inline uint64_t block_max(uint64_t x, uint64_t* scratch) {
  const uint32_t thread = this_thread(), lane = thread % 32;
  x = warp_largest(x);
  if (lane == 0) scratch[thread / 32] = x;
  __syncthreads();
  x = warp_largest(lane < blockDim.x / 32 ? scratch[lane] : 0);
  __syncthreads();
  return x;
}

// Takes the most promising of some ids, the first whose bound is `top`, the largest of them. Returns its place, with
// `top` the largest of the others. A bound of -inf stands for no id.
template <uint32_t kCount>
__device__ inline uint32_t take_top(float (&bounds)[kCount], float& top) {
  uint32_t at = kCount;
  float next = -INFINITY;
#pragma unroll
  for (uint32_t k = 0; k < kCount; ++k) {
    if (at == kCount && bounds[k] == top) {
      bounds[k] = -INFINITY, at = k;
    } else {
      next = fmaxf(next, bounds[k]);
    }
  }
  top = next;
  return at;
}

// At least the noise that 64 random bits become, without a logarithm, from the upper 32 of them as a fraction u.
// swy_gumbel is -log(-log1p(-u)), which is not above -log(u). A float's bits, as an integer times 2^-23, less 127, are
// not above its logarithm to base 2. For u = 0 the result is above SWY_GUMBEL_MAX.
__device__ inline float noise_bound(uint64_t random) {
  const auto bits = static_cast<float>(swy_float_bits(static_cast<float>(static_cast<uint32_t>(random >> 32))));
  constexpr float kLn2 = 0x1.62e430p-1f, kRounding = 0x1p-10f;
  return fmaf(bits, -kLn2 * 0x1p-23f, kLn2 * (127 + 32) + kRounding);
}

// Upper bounds of the values that the last step compares, in rows that have no biases and are never raised.
struct LogitBound {
  uint64_t seed = 0, position = 0;
  float factor = 0;  // 0: greedy

  __device__ LogitBound() {}
  __device__ explicit LogitBound(const Draw& r)
      : seed(r.p->seed), position(r.slot->position), factor(r.greedy ? 0 : r.p->inv_temperature) {}

  // Turns logits into their bounds: +inf for bad ones, never -inf. The random bits of all ids are computed side by
  // side, as those of one are a long chain of few instructions.
  template <uint32_t kCount>
  __device__ void apply(const uint32_t (&id)[kCount], float (&v)[kCount]) const {
    if (factor != 0.0f) {
#pragma unroll
      for (uint32_t k = 0; k < kCount; ++k) {
        v[k] = swy_add(swy_mul(v[k], factor), noise_bound(swy_random_bits(seed, position, id[k])));
      }
    }
#pragma unroll
    for (float& x : v) x = x < INFINITY ? fmaxf(x, -FLT_MAX) : INFINITY;
  }
};

// The largest key of the ids that a thread has examined, and whether one of their logits was bad; then the same for a
// block.
struct Best {
  uint64_t key = 0;
  int bad = 0;

  __device__ void look(const Draw& r, uint32_t id, float logit) {
    bad |= swy_is_bad_logit(logit);
    if (!is_live(r, id, logit)) return;
    const uint64_t other = final_key(r, id, value_of(r, id, logit));
    key = other > key ? other : key;
  }
  // Ids whose LogitBound is less have smaller keys. Nothing is said about values below -2^39, which may come from
  // logits that the clamp raised: by scaling, its -2^100 becomes -2^40 or less.
  __device__ float bound() const {
    const float x = value_in(key);
    return key == 0 || x < -0x1p39f ? -FLT_MAX : bound_of(x);
  }
  // The whole block calls this: writes the result of all threads to d.best and d.bad. `scratch`: that of block_max.
  __device__ void give(const Draws& d, uint64_t at, uint64_t* scratch) {
    key = block_max(key, scratch);
    bad = __syncthreads_or(bad);
    if (threadIdx.x != 0) return;
    d.best[at] = key;
    d.bad[at] = static_cast<uint32_t>(bad);
  }
};

// Microseconds that sampling adds to a head. The same for all kernels. So the fastest head is the same with and without
// sampling, and the device samples what the host would sample from its logits.
constexpr double kDrawCost = 3;

// Samples every row, from the parts' results or from its logits.
swy_status record_finish(const Recording& r, const Draws& d);
// The operation's outputs and states; `parts` blocks will have examined each row. The barriers are record_finish's.
Draws draws_of(const Recording& r, uint32_t vocab, uint32_t parts, Arena& arena);
// The workspace that draws_of uses.
uint64_t draws_bytes(const swy_device& device, const swy_op& op, uint32_t parts);

}  // namespace gpu
