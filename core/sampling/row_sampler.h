// RowSampler: swy_sample_row, fast. The same tokens and the same bits, without sorting the row.
//
// One pass scales the row and keeps the maximum of every group of 64 ids; what follows looks at the few groups that
// matter. Top-k and top-p find their last weight by counting digits of it (a radix selection), and ties are resolved by
// keeping the lowest ids. Without truncation every id's noise is bounded from its first random word, and the exact
// noise is computed only where the bound reaches the best so far.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/sampling/row_kernels.h"

namespace switchyard {

class RowSampler {
 public:
  // For rows of up to `vocab` ids (at most SWY_MAX_VOCAB). Holds about 16 bytes per id.
  explicit RowSampler(uint32_t vocab, const RowKernels& kernels = *row_kernels().front());

  // As swy_sample_row. One thread at a time; allocates nothing.
  int32_t sample(const swy_sample_params& p, const swy_sample_row_in& in, swy_sample_row_out& out);

  // As swy_row_top_logprobs, for a row that `sample` accepted. Allocates nothing.
  void top_logprobs(std::span<const float> logits, std::span<int32_t> ids, std::span<float> logprobs);

 private:
  // Steps 0 to 3, into z_ and group_max_. Errors: as swy_sample_row.
  int32_t prepare(const swy_sample_params& p, const swy_sample_row_in& in, int32_t& bad_id);
  void apply_biases(const swy_sample_params& p, const swy_sample_row_in& in);
  uint32_t argmax() const;

  // The kept ids: ids_[0, kept_), ascending, with their ranks (what they are ordered by) beside them.
  void keep_top_k(uint32_t k);
  void keep_weights(uint32_t least);
  void keep_top_p(const swy_sample_params& p);
  void truncate_list(const swy_sample_params& p);
  bool truncate(const swy_sample_params& p);  // false: nothing is truncated
  uint64_t rank_sum() const;
  template <bool kByWeight>
  void cut(uint64_t need);

  uint32_t draw(const swy_sample_params& p, uint64_t position, bool truncated);
  void draw_group(const swy_sample_params& p, uint64_t position, const uint32_t* ids, const float* z, uint64_t& best);

  const RowKernels& kernels_;
  uint32_t vocab_ = 0, groups_ = 0;  // of the present row
  uint32_t kept_ = 0;
  float max_ = 0;                      // highest z
  std::vector<float> z_;               // [groups * kGroup]
  std::vector<float> group_max_;       // [groups]
  std::vector<float> scratch_;         // [groups]
  std::vector<uint32_t> group_rank_;   // [groups]
  std::vector<uint32_t> ids_, ranks_;  // [groups * kGroup]
  std::array<uint64_t, 2048> histogram_{};
};

}  // namespace switchyard
