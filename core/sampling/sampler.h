// Sampler: draws tokens from logits on the host, by the rules of switchyard/sampling_math.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "switchyard/sampling_math.h"

namespace switchyard {

struct SamplingParams {
  float temperature = 0.8f;  // 0: always the most likely token
  float top_p = 0.95f;
  float min_p = 0.0f;
  int32_t top_k = 0;  // 0: off
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::optional<uint64_t> seed;  // none: a random one
};

class Sampler {
 public:
  // Errors: usage, naming the parameter, its value and the allowed range.
  static Result<Sampler> create(const SamplingParams& params, uint32_t vocab);

  uint64_t seed() const { return params_.seed; }

  // Counts a token for the penalties.
  void saw_prompt(int32_t id);
  void saw_output(int32_t id);

  // Draws the token at index `position` of its sequence. Allocates nothing. Errors: invalid_data, for a NaN or +inf
  // logit or when no token is left.
  Result<int32_t> sample(std::span<const float> logits, uint64_t position);

 private:
  Sampler() = default;
  bool penalised() const;

  swy_sample_params params_{};
  std::vector<uint64_t> workspace_;
  std::vector<uint32_t> counts_;
};

}  // namespace switchyard
