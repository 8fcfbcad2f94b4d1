// SPDX-License-Identifier: Apache-2.0
// Completes sampling on the host from the results of TOP_CANDIDATES, without the row of logits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "switchyard/sampling_row.h"

namespace switchyard {

// One row of TOP_CANDIDATES' outputs, borrowed.
struct Candidates {
  std::span<const int32_t> ids;    // [k], best first
  std::span<const float> logits;   // [k], unmodified
  swy_candidates_result result{};  // its live ids beyond k are known by their total weight alone
};

// Samples as swy_sample_row would from the whole row: returns its status, and sets *out as it would. Returns none if
// the candidates do not decide; the host then reads the row's logits. `in` describes the row except its logits; the
// parameters are those that the device had. `workspace` holds k elements. The candidates are well-formed, which
// Sampler::finish ensures. Allocates nothing, thread-safe.
std::optional<int32_t> finish_draw(const swy_sample_params& p, const swy_sample_row_in& in,
                                   const Candidates& candidates, std::span<uint64_t> workspace,
                                   swy_sample_row_out& out);

// The n = ids.size() most likely tokens, as swy_row_top_logprobs has them; false where the candidates do not decide
// them. `result` is of a row sampled with SWY_SAMPLE_LOGPROB. `workspace` holds k elements.
bool finish_top_logprobs(const swy_sample_params& p, const swy_sample_row_in& in, const Candidates& candidates,
                         std::span<uint64_t> workspace, std::span<int32_t> ids, std::span<float> logprobs);

}  // namespace switchyard
