// SPDX-License-Identifier: Apache-2.0
// RowSampler: swy_sample_row, fast, on one thread or on a team. The same tokens and the same bits, without sorting.
//
// The row is divided into groups of 64 ids, and each member of the team has a range of groups. A greedy or untruncated
// row is processed once, group by group: every id's noise is bounded from its first random word, and the exact noise is
// computed only if the bound reaches the best so far. For other rows one pass scales the row and keeps the maximum of
// every group; later passes process only the few groups that matter. Top-k and top-p find their last weight by counting
// its digits (a radix selection); of equal weights the lowest ids are kept. Weights are integers, so sums of the
// members' parts are exact. A short list goes to every member as a whole, and needs no barrier after that.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "switchyard/sdk/row_kernels.hpp"
#include "switchyard/sdk/team.hpp"

namespace swy {

// The best id of some of a row's groups.
struct RowBest {
  uint64_t key = 0;  // swy_order_key of its z, with the noise unless greedy; 0: none is live
  bool bad = false;  // a logit is NaN or +inf
};

// Whether one look at each id is enough to sample a row: it is greedy, or nothing is truncated.
bool row_scans(const swy_sample_params& p, uint32_t vocab);

// Takes groups [first, first + n) of such a row into `best`, given their logits (`in.logits` is not read). The best of
// all groups, in any order and by any number of threads, is the token of swy_sample_row. Allocates nothing.
void scan_groups(const RowKernels& kernels, const swy_sample_params& p, const swy_sample_row_in& in, uint32_t first,
                 uint32_t n, const float* logits, RowBest& best);

class RowSampler {
 public:
  // The longest list of ids that a team makes (ids.size() of top_logprobs and candidates).
  static constexpr uint32_t kTeamList = 4096;

  // For one thread at a time, and rows of up to `vocab` ids (at most SWY_MAX_VOCAB). Holds about 13 bytes per id.
  explicit RowSampler(uint32_t vocab, const RowKernels& kernels = *row_kernels().front());

  // One member's view of a sampler in `memory`: bytes(vocab, team.size), aligned to 64, the same for all members and
  // borrowed as the team is. Its functions are called by all members, with the same arguments, and return the same.
  RowSampler(uint32_t vocab, void* memory, const swy_team& team, const RowKernels& kernels);
  static uint64_t bytes(uint32_t vocab, uint32_t members);

  // As swy_sample_row. Allocates nothing, like the others.
  int32_t sample(const swy_sample_params& p, const swy_sample_row_in& in, swy_sample_row_out& out);

  // As swy_row_top_logprobs, for a row that `sample` accepted. Of a team, member 0 writes.
  void top_logprobs(std::span<const float> logits, std::span<int32_t> ids, std::span<float> logprobs);

  // As swy_row_candidates, for k = ids.size(). Of a team, member 0 writes.
  void candidates(const swy_sample_params& p, const swy_sample_row_in& in, std::span<int32_t> ids,
                  std::span<float> logits, swy_candidates_result& out);

 private:
  static constexpr uint32_t kDigits = 2048;
  // The members' sums, exchanged at a barrier.
  struct alignas(64) Totals {
    uint64_t bad = UINT64_MAX;                 // lowest bad id
    uint64_t high = 0, least = 0;              // highest
    uint64_t kept = 0, sum = 0, kept_sum = 0;  // summed
  };
  struct Memory;

  bool begin(const swy_sample_params& p, const swy_sample_row_in& in);
  Totals reduce(const Totals& own);
  int32_t prepare(const swy_sample_params& p, const swy_sample_row_in& in, uint32_t k, int32_t& bad_id);
  uint64_t first_bad(const swy_sample_row_in& in) const;
  std::span<const float> own_logits(const swy_sample_row_in& in) const;
  int32_t scan(const swy_sample_params& p, const swy_sample_row_in& in, swy_sample_row_out& out);
  uint64_t logprob_total(const swy_sample_row_in& in, float* max);
  bool leads() const { return team_->rank == 0; }

  // The kept ids: ids_[0, kept_), ascending, with their ranks (by which they are ordered) beside them. The members'
  // lists follow one another, or, once gathered, each member has them all.
  float least_of_top(uint32_t k);
  void keep_top_k(uint32_t k);
  void keep_weights(uint32_t least);
  void keep_top_p(const swy_sample_params& p);
  void truncate_list(const swy_sample_params& p);
  void truncate(const swy_sample_params& p);
  uint64_t collect();
  void gather(uint64_t all);
  uint64_t rank_sum() const;
  uint64_t over_members(uint64_t own);
  template <bool kByWeight>
  void cut(uint64_t need);
  template <bool kByWeight>
  uint32_t find_digit(uint32_t shift, uint32_t bits, uint32_t prefix, uint32_t known, uint64_t& need);
  uint64_t draw(const swy_sample_params& p, uint64_t position);
  void sort_list();

  const RowKernels* kernels_;
  const swy_team* team_;
  struct Free {
    void operator()(char* p) const;
  };
  std::unique_ptr<char[], Free> own_;  // of a sampler for one thread
  uint32_t capacity_;                  // ids
  // Shared by the team.
  Totals* totals_;        // [2, members]
  uint64_t* histograms_;  // [2, members, kDigits]
  float* z_;              // [groups * kGroup]
  float* group_max_;      // [groups]
  float* scratch_;        // [groups]
  uint32_t* group_rank_;  // [groups]
  uint32_t* lists_;       // [2, groups * kGroup]: ids and ranks
  uint32_t* few_;         // [members, 2, kTeamList]: gathered ids and ranks
  // Of this member.
  uint32_t vocab_ = 0, groups_ = 0;  // of the present row
  uint32_t first_ = 0, last_ = 0;    // its groups
  uint32_t *ids_ = nullptr, *ranks_ = nullptr;
  uint32_t kept_ = 0;
  bool gathered_ = true, begun_ = false;
  float max_ = 0;    // highest z of the row
  float least_ = 0;  // reached by at least k ids of the row
  uint32_t turn_ = 0, histogram_turn_ = 0;
  const Totals* latest_ = nullptr;
};

}  // namespace swy
