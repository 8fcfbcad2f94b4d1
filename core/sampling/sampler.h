// SPDX-License-Identifier: Apache-2.0
// Sampler: samples the tokens of one sequence on the host, by the rules of switchyard/sampling_math.h.
//
// It holds what the chain needs from one token to the next: the normalised parameters, the counts for the penalties,
// the logit biases and the stop ids. The same parameters, seed and logits give the same tokens on every device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/sampling/candidates.h"
#include "switchyard/sdk/row_sampler.hpp"
#include "switchyard/step.h"

namespace switchyard {

struct SamplingParams {
  float temperature = 0.8f;  // 0: always the most likely token
  float top_p = 0.95f;
  float min_p = 0.0f;
  int32_t top_k = 0;  // 0: off
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::optional<uint64_t> seed = {};        // none: a random one
  std::vector<swy_logit_bias> biases = {};  // each id once, in any order
  std::vector<int32_t> stop_ids = {};
  bool logprob = false;       // also compute the sampled token's log-probability
  uint32_t top_logprobs = 0;  // also list this many most likely tokens; above 0 it implies `logprob`
};

struct Draw {
  int32_t token = -1;
  bool stopped = false;  // the token is a stop id
  float logprob = 0.0f;
  // The most likely tokens of the model's own distribution, best first, until the next token is sampled; id -1 if there
  // are fewer.
  std::span<const int32_t> top_ids;
  std::span<const float> top_logprobs;
};

class Sampler {
 public:
  // Samplers that are used by one thread can share a `row` sampler of their vocabulary; without one each has its own.
  // Errors: usage, naming the parameter, its value and the allowed range.
  static Result<Sampler> create(const SamplingParams& params, uint32_t vocab,
                                std::shared_ptr<swy::RowSampler> row = {});

  uint64_t seed() const { return params_.seed; }

  // Counts a token for the penalties.
  void saw_prompt(int32_t id);
  void saw_output(int32_t id);
  // An id's count, and setting it to an earlier one: takes back what was counted meanwhile.
  uint32_t count_of(int32_t id) const { return counts_.empty() ? 0 : counts_[static_cast<size_t>(id)]; }
  void set_count(int32_t id, uint32_t count) {
    if (!counts_.empty()) counts_[static_cast<size_t>(id)] = count;
  }

  // Draws the token at index `position` of its sequence. `mask`: bit id % 32 of word id / 32 allows id; NULL: all.
  // Allocates nothing. Errors: invalid_data, for a NaN or +inf logit or when no token is left; usage, for another
  // number of logits than the vocabulary.
  Result<Draw> draw(std::span<const float> logits, uint64_t position, const uint32_t* mask = nullptr);
  // The same token without its log-probability and without the likely tokens; for a guess.
  Result<int32_t> guess(std::span<const float> logits, uint64_t position, const uint32_t* mask = nullptr);

  // The same from a device's candidates; none if they do not decide and the logits must be read. Errors: as `draw`;
  // internal, for an answer that no device may give.
  Result<std::optional<Draw>> finish(const Candidates& candidates, uint64_t position, const uint32_t* mask = nullptr);

  // The same from a token that a device sampled. Errors: as `finish`.
  Result<Draw> accept(const swy_sample_result& result, std::span<const int32_t> top_ids,
                      std::span<const float> top_logprobs);

  // Data that a device needs to sample the same tokens: for the step's block (step.h) and the slot of counts.
  const swy_sample_params& params() const { return params_; }
  std::span<const swy_logit_bias> biases() const { return biases_; }
  std::span<const int32_t> stop_ids() const { return stop_ids_; }
  uint32_t top_logprobs() const { return static_cast<uint32_t>(top_ids_.size()); }
  std::span<const uint32_t> counts() const { return counts_; }  // [vocab]; empty when nothing is penalised

 private:
  Sampler(uint32_t vocab, std::shared_ptr<swy::RowSampler> row) : row_(std::move(row)), vocab_(vocab) {}
  Status set_extras(const SamplingParams& params);
  Status check(const Candidates& candidates) const;
  swy_sample_row_in input(uint64_t position, const uint32_t* mask) const;
  Result<Draw> answer(int32_t status, const swy_sample_row_out& out) const;

  swy_sample_params params_{};
  std::shared_ptr<swy::RowSampler> row_;
  uint32_t vocab_;
  std::vector<swy_logit_bias> biases_;  // ids rising
  std::vector<int32_t> stop_ids_;
  std::vector<uint32_t> counts_;
  std::vector<uint64_t> workspace_;  // of `finish`
  std::vector<int32_t> top_ids_;
  std::vector<float> top_logprobs_;
};

}  // namespace switchyard
