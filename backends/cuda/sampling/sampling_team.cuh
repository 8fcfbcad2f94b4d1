// SPDX-License-Identifier: Apache-2.0
// Many blocks that sample one row of logits together.
//
// A team processes its rows in turn, separated by a barrier of its own. The barrier cannot hang: a team has at most as
// many blocks as the device has multiprocessors, all its blocks have begun before a later kernel may begin, and earlier
// kernels do not wait for it. Each block owns a range of ids. Thresholds are found digit by digit from histograms that
// all blocks add to. Their sums are integers, so the order of threads makes no difference.
#pragma once

#include "sampling.cuh"

namespace gpu {

constexpr uint32_t kTeamThreads = 512, kDigits = 2048, kDigitsPerThread = kDigits / kTeamThreads;
// Of truncated.cuh: the largest k of top-k, candidates of all blocks and of one.
constexpr uint32_t kMostBest = 128, kGathered = 256, kListed = 256, kValuesAhead = 4;

// One block's results for one row, for the other blocks.
struct TeamPart {
  uint64_t best;     // the largest order key that the last step compares
  uint64_t total;    // of the weights of log-probabilities
  uint64_t ties[2];  // ids with the last rank that top-k, and top-p, keeps
  uint32_t top;      // the largest key of an adjusted logit, 0: no live id
  uint32_t highest;  // the largest key of a clamped logit
  uint32_t bad;      // a logit is NaN or +inf
};

// One block's results of a pass of truncated.cuh, for the other blocks.
struct Sought {
  uint64_t sum, best;  // of weights, and the largest order key that the last step compares
  uint32_t weight;     // of its id
  uint32_t listed;     // candidates of top-k
};

struct TeamShared {
  union {
    struct {
      uint32_t low[kDigits], high[kDigits];  // a histogram of 64-bit sums, in halves
    };
    struct {  // truncated.cuh
      uint64_t gathered[kGathered], noisy[kGathered], weights[kMostBest];
    };
  };
  Draw draw;  // the row that sample.cu draws; in registers, its fields would leave too few to the loops over ids
  uint64_t scratch[32];
  uint64_t rest, all;
  unsigned long long found;
  uint32_t digit, id, count;
};

__device__ inline uint64_t block_total(uint64_t x, uint64_t* scratch) {
  constexpr uint32_t kWarps = kTeamThreads / 32;
  const uint32_t thread = this_thread();
#pragma unroll
  for (uint32_t d = 16; d > 0; d /= 2) x += __shfl_xor_sync(kAll, x, d);
  if (thread % 32 == 0) scratch[thread / 32] = x;
  __syncthreads();
  x = scratch[thread % kWarps];
#pragma unroll
  for (uint32_t d = kWarps / 2; d > 0; d /= 2) x += __shfl_xor_sync(kAll, x, d);
  __syncthreads();
  return x;
}

// Moves each element one place to the front, and x to the last one. A loop that is not unrolled can so have its
// elements in registers: it reads the first.
template <class T, uint32_t kCount>
__device__ inline void rotate(T (&of)[kCount], T x) {
#pragma unroll
  for (uint32_t k = 0; k + 1 < kCount; ++k) of[k] = of[k + 1];
  of[kCount - 1] = x;
}

// A block's position in its team: blockIdx.x of the team blockIdx.y.
class Team {
 public:
  TeamShared& shared;
  const uint32_t blocks, rank;

  // Little of a team is in registers: what can be computed from d, which is a kernel's parameter, is.
  __device__ Team(const Draws& draws, TeamShared& s) : shared(s), blocks(gridDim.x), rank(blockIdx.x), d_(draws) {}

  // This block's ids.
  __device__ uint32_t begin() const { return min(d_.vocab, d_.block_ids * rank); }
  __device__ uint32_t end() const { return min(d_.vocab, d_.block_ids * (rank + 1)); }

  // Waits for the whole team. Earlier writes of its blocks can be read afterwards.
  __device__ void barrier() const {
    __syncthreads();
    if (threadIdx.x == 0) {
      uint32_t* came = d_.barriers + blockIdx.y;  // how often blocks have come; their number is a power of two
      const volatile uint32_t* seen = came;
      __threadfence();
      const uint32_t all = (atomicAdd(came, 1u) | (blocks - 1)) + 1;
      while (*seen - all >= 1u << 31) {
      }
      __threadfence();
    }
    __syncthreads();
  }

  // Which of two places the blocks write to before the next barrier. It changes after it, so none is overwritten before
  // all have read it.
  __device__ uint32_t side() const { return side_; }
  __device__ void change_sides() { side_ ^= 1; }

  // Calls body(id, logit) for the ids of this thread. Loads are issued before the bodies run; the code of a body, which
  // may be long, is there once.
  template <class Body>
  __device__ void for_each(const float* logits, Body body) const {
    constexpr uint32_t kAhead = 4;
    const uint32_t end = this->end();
#pragma unroll 1
    for (uint32_t id = begin() + threadIdx.x; id < end;) {
      float x[kAhead];
#pragma unroll
      for (uint32_t j = 0; j < kAhead; ++j) x[j] = id + j * kTeamThreads < end ? logits[id + j * kTeamThreads] : 0;
#pragma unroll 1
      for (uint32_t j = 0; j < kAhead && id < end; ++j, id += kTeamThreads) {
        body(id, x[0]);
        rotate(x, 0.0f);
      }
    }
  }

  // ---- one histogram: wipe, clear, add, publish, find

  // Before a row's first histogram, with a barrier of the team between: the sums that it will be added to are zero.
  __device__ void wipe() const {
#pragma unroll 1
    for (uint32_t i = rank * kTeamThreads + threadIdx.x; i < kDigits; i += blocks * kTeamThreads) {
      histogram(turn_)[i] = 0;
    }
  }

  __device__ void clear() const {
    for (uint32_t i = threadIdx.x; i < kDigits; i += kTeamThreads) shared.low[i] = shared.high[i] = 0;
    __syncthreads();
  }
  __device__ void add(uint32_t digit, uint32_t amount) const {
    if (atomicAdd(shared.low + digit, amount) > ~amount) atomicAdd(shared.high + digit, 1u);
  }
  // This block's measure of a digit; of digit 0 only once the histogram is published.
  __device__ uint64_t own(uint32_t digit) const { return uint64_t{shared.high[digit]} << 32 | shared.low[digit]; }
  // `zeros`: this thread's measure of digit 0, which most ids may have.
  __device__ void publish(uint64_t zeros) {
    uint64_t* sums = histogram(turn_);
    const uint64_t all_zeros = block_total(zeros, shared.scratch);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < kDigits; i += kTeamThreads) {
      const uint64_t sum = own(i) + (i == 0 ? all_zeros : 0);
      if (i == 0) shared.low[0] = static_cast<uint32_t>(sum), shared.high[0] = static_cast<uint32_t>(sum >> 32);
      if (sum != 0) atomicAdd(reinterpret_cast<unsigned long long*>(sums + i), static_cast<unsigned long long>(sum));
    }
    turn_ = (turn_ + 1) % 3;
    wipe();  // all blocks have read it, a barrier ago
    barrier();
  }
  // Finds the digit at which the sum, from the highest digit down, reaches need_of(sum of all). False if it is never
  // reached. For every thread: shared.digit, .all (the measure of that digit) and .rest (how much of it is needed).
  template <class Need>
  __device__ bool find(Need need_of) const {
    const uint64_t* sums = histogram((turn_ + 2) % 3);
    const uint32_t highest = kDigits - 1 - threadIdx.x * kDigitsPerThread, lane = threadIdx.x % 32;
    uint64_t measure[kDigitsPerThread], own = 0, total = 0;
    for (uint32_t j = 0; j < kDigitsPerThread; ++j) own += measure[j] = __ldcg(sums + highest - j);
    uint64_t before = own;
#pragma unroll
    for (uint32_t d = 1; d < 32; d *= 2) {
      const uint64_t lower = __shfl_up_sync(kAll, before, d);
      if (lane >= d) before += lower;
    }
    if (lane == 31) shared.scratch[threadIdx.x / 32] = before;
    __syncthreads();
    before -= own;
#pragma unroll 1
    for (uint32_t w = 0; w < kTeamThreads / 32; ++w) {
      if (w < threadIdx.x / 32) before += shared.scratch[w];
      total += shared.scratch[w];
    }
    const uint64_t need = need_of(total);
    for (uint32_t j = 0; j < kDigitsPerThread; ++j) {
      if (before < need && before + measure[j] >= need) {
        shared.digit = highest - j;
        shared.all = measure[j];
        shared.rest = need - before;
      }
      before += measure[j];
    }
    __syncthreads();
    return need <= total;
  }

 private:
  // The team has three: one is added to, one read, one wiped.
  __device__ uint64_t* histogram(uint32_t i) const { return d_.histograms + (uint64_t{blockIdx.y} * 3 + i) * kDigits; }

  const Draws& d_;
  uint32_t turn_ = 0, side_ = 0;
};

// Which of one block's ids a prefix in (rank descending, id ascending) keeps.
struct Cut {
  uint32_t rank = 0, id = 0xffffffffu;  // larger ranks, and of this one ids up to `id`
  __device__ bool keeps(uint32_t r, uint32_t i) const { return r > rank || (r == rank && i <= id); }
};

// A row as one block of its team sees it.
struct TeamRow {
  Team& team;
  const Draw& r;
  const float* logits;
  TeamPart* parts;  // [team.blocks]

  template <class Body>
  __device__ void for_each_live(Body body) const {
    team.for_each(logits, [&](uint32_t id, float logit) {
      if (is_live(r, id, logit)) body(id, value_of(r, id, logit));
    });
  }

  // The shortest prefix whose measure reaches need_of(measure of all); its last rank is cut. The measure is the sum of
  // ranks with `by_rank`, else the number of ids. rank_of(id, z, &rank) tells whether an id takes part. False if all of
  // them measure less.
  template <class Need, class Rank>
  __device__ bool cut(bool by_rank, Need need_of, Rank rank_of, Cut* out) const {
    uint32_t prefix = 0;
    uint64_t need = 0;
#pragma unroll 1
    for (uint32_t pass = 0; pass < 3; ++pass) {
      const uint32_t shift = pass == 0 ? 21 : pass == 1 ? 10 : 0, digits = pass == 2 ? 1024 : 2048;
      const uint32_t known = pass == 0 ? 0 : ~(digits * (1u << shift) - 1);
      uint64_t zeros = 0;
      team.clear();
      for_each_live([&](uint32_t id, float z) {
        uint32_t rank = 0;
        if (!rank_of(id, z, &rank) || (rank & known) != prefix) return;
        const uint32_t digit = (rank >> shift) & (digits - 1), amount = by_rank ? rank : 1;
        if (digit == 0) {
          zeros += amount;
        } else {
          team.add(digit, amount);
        }
      });
      team.publish(zeros);
      if (!team.find([&](uint64_t total) { return pass == 0 ? need_of(total) : need; })) return false;
      prefix |= team.shared.digit << shift;
      need = team.shared.rest;
    }
    const uint64_t each = by_rank ? prefix : 1, ties = (need + each - 1) / each;
    out->rank = prefix;
    if (ties < team.shared.all / each) {
      out->id = last_tie(ties, team.own(team.shared.digit) / each, prefix, rank_of, by_rank ? 1 : 0);
    }
    return true;
  }

 private:
  // Of the ids with rank `last`, of which this block has `own`, the ties-th of the whole row, if it is in this block.
  template <class Rank>
  __device__ uint32_t last_tie(uint64_t ties, uint64_t own, uint32_t last, Rank rank_of, uint32_t which) const {
    const auto tied = [&](uint32_t id, float z) {
      uint32_t rank = 0;
      return rank_of(id, z, &rank) && rank == last;
    };
    if (threadIdx.x == 0) parts[team.rank].ties[which] = own;
    team.barrier();
    const uint64_t theirs = threadIdx.x < team.rank ? __ldcg(&parts[threadIdx.x].ties[which]) : 0;
    const uint64_t before = block_total(theirs, team.shared.scratch);
    if (before + own <= ties) return 0xffffffffu;
    return before >= ties ? team.begin() - 1 : nth_tie(static_cast<uint32_t>(ties - before), tied);
  }

  // The n-th of this block's ids that `tied` accepts; there are at least n.
  template <class Tied>
  __device__ uint32_t nth_tie(uint32_t n, Tied tied) const {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t end = team.end();
#pragma unroll 1
    for (uint32_t first = team.begin(); first < end; first += kTeamThreads) {
      const uint32_t id = first + threadIdx.x;
      const bool is = id < end && is_live(r, id, logits[id]) && tied(id, value_of(r, id, logits[id]));
      const auto here = static_cast<uint32_t>(__syncthreads_count(is));
      if (here < n) {
        n -= here;
        continue;
      }
      const uint32_t among = __ballot_sync(kAll, is);
      if (lane == 0) team.shared.scratch[warp] = __popc(among);
      __syncthreads();
      uint64_t place = __popc(among & ((2u << lane) - 1));
#pragma unroll 1
      for (uint32_t w = 0; w < warp; ++w) place += team.shared.scratch[w];
      if (is && place == n) team.shared.id = id;
      __syncthreads();
      return team.shared.id;
    }
    return 0xffffffffu;
  }
};

}  // namespace gpu
