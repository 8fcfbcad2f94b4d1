// SPDX-License-Identifier: Apache-2.0
// Drawing the token of a truncated row of which nothing else is wanted, in few passes. sampling_team.cuh does the same
// for any row, with thresholds that are found digit by digit.
//
// The kernels before have found the row's largest adjusted logit, in parts. With top-p no threshold is needed: an id
// stays if the weights of those before it add up to less than what is needed. So one pass adds up all weights and finds
// the id that wins if it stays; the next one adds up the weights before it. With a probability of top-p it stays; else
// the same begins anew for the ids before it. With min-p alone one pass suffices.
//
// With top-k the k-th largest of the parts' results is a bound: at least k ids reach it, and few more do. Each block
// lists those of its share, and then each draws from all of them.
#pragma once

#include "sampling_team.cuh"

namespace gpu {

// A truncated row as one block of its team sees it.
class TruncatedRow {
 public:
  // Row i, whose highest value is `top`.
  __device__ TruncatedRow(const Draws& d, uint32_t i, Team& team, const Draw& r, float top, Stamps& stamps)
      : d_(d), i_(i), team_(team), r_(r), top_(top), stamps_(stamps) {}

  // The order key of the id that is drawn. 0: there are too many candidates.
  __device__ uint64_t draw() { return r_.p->top_k > 0 ? of_best() : by_weight(); }

 private:
  static constexpr uint32_t kAhead = kValuesAhead;

  // What the team's blocks write for each other: [blocks], and [blocks, kListed].
  __device__ uint32_t exchange() const { return (2 * blockIdx.y + team_.side()) * team_.blocks; }
  __device__ Sought* sought() const { return d_.sought + exchange(); }
  __device__ uint64_t* listed() const { return d_.listed + uint64_t{exchange()} * kListed; }

  // Whole warps call body(id, apart, z) with the values of the ids id + k * apart; -inf where an id is not live. The
  // blocks' ids alternate, since the best ids of a row are often neighbours.
  template <class Body>
  __device__ void for_each_value(Body body) const {
    const uint32_t apart = team_.blocks * kTeamThreads, lane = threadIdx.x % 32;
    const float inv = r_.p->inv_temperature;
    const bool adjusted = r_.counts != nullptr || r_.mask != nullptr || r_.slot->bias_count != 0;
    const float* logits = d_.logits + uint64_t{r_.slot->logit_row} * d_.vocab;
    uint32_t first = team_.rank * kTeamThreads + threadIdx.x;
    float z[kAhead], next[kAhead];
    const auto load = [&](float(&to)[kAhead], uint32_t from) {
#pragma unroll
      for (uint32_t k = 0; k < kAhead; ++k) {
        to[k] = from + k * apart < d_.vocab ? logits[from + k * apart] : -INFINITY;
      }
    };
    load(next, first);
#pragma unroll 1
    for (; first - lane < d_.vocab; first += kAhead * apart) {
#pragma unroll
      for (uint32_t k = 0; k < kAhead; ++k) z[k] = next[k];
      load(next, first + kAhead * apart);
      if (adjusted) {
        uint32_t words[kAhead] = {};
#pragma unroll
        for (uint32_t k = 0; k < kAhead; ++k) {
          if (r_.counts != nullptr && first + k * apart < d_.vocab) words[k] = r_.counts[first + k * apart];
        }
#pragma unroll 1
        for (uint32_t k = 0, id = first; k < kAhead; ++k, id += apart) {
          const float x = id < d_.vocab && is_live(r_, id, z[0]) ? value_of(r_, id, z[0], words[0]) : -INFINITY;
          rotate(z, x), rotate(words, 0u);
        }
      } else {
#pragma unroll
        for (float& x : z) {
          if (swy_float_bits(x) != SWY_BITS_NEG_INF) x = swy_clamp(swy_mul(swy_clamp(x), inv));
        }
      }
      body(first, apart, z);
    }
  }
  __device__ uint32_t weight_of(float z) const { return swy_weight(swy_add(z, -top_)); }

  // ---- top-p and min-p

  // A pass over the ids before `limit`, an order key of a weight: the sum of their weights and, if `seeks`, the largest
  // key of those that min-p keeps. Ids are worked on side by side, as each is a long chain of few instructions.
  __device__ Sought pass(uint64_t limit, bool seeks) {
    const uint32_t least = max(1u, r_.p->min_p_q30);
    const uint32_t lightest = limit != 0 ? static_cast<uint32_t>(limit >> 32) : sums() ? 1 : least;
    const float reach = swy_log(static_cast<float>(lightest), -30) - 0x1p-10f;  // lower ids weigh less than `lightest`
    const uint64_t seed = r_.p->seed, position = r_.slot->position;
    TeamShared& shared = team_.shared;
    if (threadIdx.x == 0) shared.found = 0;
    __syncthreads();
    Sought own{0, 0, 0, 0};
    for_each_value([&](uint32_t first, uint32_t apart, const float(&z)[kAhead]) {
      float top = -INFINITY;
#pragma unroll
      for (const float x : z) top = fmaxf(top, x);
      if (!__any_sync(kAll, swy_add(top, -top_) >= reach)) return;
      bool kept[kAhead];
#pragma unroll
      for (uint32_t k = 0; k < kAhead; ++k) {
        const uint32_t w = weight_of(z[k]);
        kept[k] = swy_order_key(w, first + k * apart) > limit;
        own.sum += kept[k] ? w : 0;
        kept[k] = kept[k] && w >= least;
      }
      if (!seeks) return;
      float bounds[kAhead];  // of what the last step compares
#pragma unroll
      for (uint32_t k = 0; k < kAhead; ++k) {
        bounds[k] = swy_add(z[k], noise_bound(swy_random_bits(seed, position, first + k * apart)));
      }
      top = -INFINITY;
#pragma unroll
      for (uint32_t k = 0; k < kAhead; ++k) {
        if (!kept[k]) bounds[k] = -INFINITY;
        top = fmaxf(top, bounds[k]);
      }
      const uint64_t known = *const_cast<volatile unsigned long long*>(&shared.found);
      uint64_t best = known > own.best ? known : own.best;  // of the warp
#pragma unroll 1
      for (;;) {
        const bool may_win = !(top < (best == 0 ? -FLT_MAX : value_in(best)));
        if (!__any_sync(kAll, may_win)) break;
        if (may_win) {
          const uint32_t at = take_top(bounds, top);
          float value = z[0];
#pragma unroll
          for (uint32_t k = 1; k < kAhead; ++k) value = at == k ? z[k] : value;
          const uint64_t key = noisy_key(seed, position, first + at * apart, value);
          if (key > best) own.best = best = key, own.weight = weight_of(value);
        }
        best = warp_largest(best);
      }
      if (best > known && threadIdx.x % 32 == 0) atomicMax(&shared.found, static_cast<unsigned long long>(best));
    });
    own.sum = block_total(own.sum, shared.scratch);
    Sought* const sought = this->sought();
    Sought& mine = sought[team_.rank];
    if (own.best != 0 && own.best == shared.found) mine.best = own.best, mine.weight = own.weight;
    if (threadIdx.x == 0) {
      mine.sum = own.sum;
      if (shared.found == 0) mine.best = 0;
    }
    stamps_.note(limit == 0 ? kAsked : kArrived);
    team_.barrier();
    const bool reads = threadIdx.x < team_.blocks;
    const Sought* from = sought + threadIdx.x;
    Sought all{reads ? __ldcg(&from->sum) : 0, reads ? __ldcg(&from->best) : 0, reads ? __ldcg(&from->weight) : 0, 0};
    const uint64_t best = block_max(all.best, shared.scratch);
    if (best != 0 && all.best == best) shared.count = all.weight;
    all.sum = block_total(all.sum, shared.scratch);
    all.best = best, all.weight = shared.count;
    team_.change_sides();
    return all;
  }

  __device__ bool sums() const { return r_.p->top_p_q15 < SWY_TOP_P_OFF; }

  // The first of all ids is always a candidate, and is never refused.
  __device__ uint64_t by_weight() {
    uint64_t drawn = 0, limit = 0, need = 0;
#pragma unroll 1
    for (bool seeks = true;; seeks = !seeks) {
      const Sought found = pass(limit, seeks);
      if (!sums()) return found.best;
      if (!seeks) {
        if (found.sum < need) return drawn;
        continue;
      }
      if (limit == 0) {
        need = swy_top_p_need(r_.p, found.sum);
        stamps_.note(kRead);
      }
      drawn = found.best;
      limit = swy_order_key(found.weight, id_of(drawn));
    }
  }

  // ---- top-k

  // A value that at least k ids reach, or all.
  __device__ float bound_of_best() const {
    uint32_t key = 0, least = swy_float_key(-0x1p100f), above = swy_float_key(0x1p100f) + 1;
    for (uint32_t p = threadIdx.x; p < d_.parts; p += kTeamThreads) {
      key = max(key, static_cast<uint32_t>(d_.best[uint64_t{i_} * d_.parts + p] >> 32));
    }
    const auto k = static_cast<uint32_t>(r_.p->top_k);
    while (above - least > 1) {
      const uint32_t middle = least + (above - least) / 2;
      const auto reach = static_cast<uint32_t>(__syncthreads_count(key >= middle));
      (reach < k ? above : least) = middle;
      if (reach >= k && reach <= k + k / 4) break;
    }
    return swy_scale(r_.p, float_of_key(least));
  }

  // Lists this block's ids from the bound on.
  __device__ void list(float bound) {
    uint32_t& count = team_.shared.count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    uint64_t* keys = listed() + team_.rank * kListed;
    for_each_value([&](uint32_t first, uint32_t apart, const float(&z)[kAhead]) {
#pragma unroll
      for (uint32_t k = 0; k < kAhead; ++k) {
        if (!(z[k] >= bound)) continue;
        const uint32_t at = atomicAdd(&count, 1u);
        if (at < kListed) keys[at] = swy_order_key(swy_float_key(z[k]), first + k * apart);
      }
    });
    __syncthreads();
    if (threadIdx.x == 0) sought()[team_.rank].listed = count, count = 0;
  }

  // Gathers what all blocks have listed; returns how many, 0 if there are too many.
  __device__ uint32_t gather(const Sought* sought, const uint64_t* listed_keys) {
    const uint32_t each = min(kTeamThreads / team_.blocks, kListed);
    const uint32_t block = threadIdx.x / each, own = threadIdx.x % each;
    const bool reads = block < team_.blocks;
    const uint64_t* keys = listed_keys + block * kListed;
    uint64_t key = reads ? __ldcg(keys + own) : 0;  // mostly the only one of this thread, if there is any
    const uint32_t listed = reads ? __ldcg(&sought[block].listed) : 0;
    uint32_t& count = team_.shared.count;
    for (uint32_t i = own; i < min(listed, kListed); i += each) {
      if (i != own) key = __ldcg(keys + i);
      const uint32_t at = atomicAdd(&count, 1u);
      if (at < kGathered) team_.shared.gathered[at] = key;
    }
    return __syncthreads_or(listed > kListed || count > kGathered) ? 0 : count;
  }

  // Steps 4 to 8 with the n candidates gathered: half of the threads order them, the others draw their noise.
  __device__ uint64_t choose(uint32_t n) {
    static_assert(kTeamThreads == 2 * kGathered);
    TeamShared& s = team_.shared;
    const uint32_t c = threadIdx.x % kGathered, k = static_cast<uint32_t>(r_.p->top_k);
    const uint64_t mine = c < n ? s.gathered[c] : 0;
    uint64_t weight = 0, key = 0;  // 0: not kept
    if (c < n && threadIdx.x >= kGathered)
      s.noisy[c] = noisy_key(r_.p->seed, r_.slot->position, id_of(mine), value_in(mine));
    if (c < n && threadIdx.x < kGathered) {
      uint32_t better = 0;
#pragma unroll 4
      for (uint32_t i = 0; i < n; ++i) better += s.gathered[i] > mine ? 1 : 0;
      if (better < k) s.weights[better] = weight = swy_order_key(weight_of(value_in(mine)), id_of(mine));
    }
    __syncthreads();
    if (weight != 0) {
      uint64_t total = 0, before = 0;
#pragma unroll 4
      for (uint32_t i = 0; i < min(n, k); ++i) {
        const uint64_t other = s.weights[i];
        total += other >> 32;
        before += other > weight ? other >> 32 : 0;
      }
      const bool first = r_.p->top_p_q15 >= SWY_TOP_P_OFF || before < swy_top_p_need(r_.p, total);
      if (first && weight >> 32 >= r_.p->min_p_q30) key = s.noisy[c];
    }
    return block_max(key, s.scratch);
  }

  __device__ uint64_t of_best() {
    // With k near the number of parts no bound is reached by about k of them: too many ids would be listed.
    const uint32_t k = static_cast<uint32_t>(r_.p->top_k), parts = min(d_.parts, kTeamThreads);
    if (k > kMostBest || 4 * k > 3 * parts) return 0;
    const Sought* const sought = this->sought();
    const uint64_t* const listed = this->listed();
    const float bound = bound_of_best();
    stamps_.note(kAsked);
    list(bound);
    stamps_.note(kRead);
    team_.barrier();
    stamps_.note(kArrived);
    team_.change_sides();
    const uint32_t n = gather(sought, listed);
    stamps_.note(kMultiplied);
    return n == 0 ? 0 : choose(n);
  }

  const Draws& d_;
  uint32_t i_;
  Team& team_;
  const Draw& r_;
  float top_;
  Stamps& stamps_;
};

}  // namespace gpu
