// SPDX-License-Identifier: Apache-2.0
// Head: the part of a step after the final norm: logits, and the tokens that a device samples from them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/sampling_path.h"
#include "core/plan/graph.h"

namespace switchyard {

// The results that a step wants of its head; a set.
enum HeadWant : uint32_t {
  kWantLogits = 1u << 0,      // rows that the host may read
  kWantTokens = 1u << 1,      // SAMPLE
  kWantTop = 1u << 2,         // SAMPLE with the most likely tokens
  kWantCandidates = 1u << 3,  // TOP_CANDIDATES, and the logits for tokens that they do not decide
};

// The results wanted for a row that is sampled on this path, `top`: with its most likely tokens.
constexpr HeadWant want_of(SamplingPath path, bool top) {
  if (path == SamplingPath::logits) return kWantLogits;
  return path == SamplingPath::candidates ? kWantCandidates : top ? kWantTop : kWantTokens;
}

inline constexpr uint32_t kNoValue = UINT32_MAX;

// The values of a graph that a head can make, and the state of the penalties' counts.
struct Head {
  uint32_t logits = kNoValue;
  std::vector<uint32_t> always;  // results of the graph that no head makes
  std::vector<uint32_t> beside;  // further ones, of steps that want something of a head
  uint32_t tokens = kNoValue;    // swy_sample_result [sample rows]
  uint32_t tokens_with_top = kNoValue, top_ids = kNoValue, top_logprobs = kNoValue;
  uint32_t candidate_ids = kNoValue, candidate_logits = kNoValue, candidate_result = kNoValue;
  uint32_t counts = kNoValue;  // a state
  uint32_t top_count = 0, candidate_count = 0;

  // The results of a plan for these wants.
  std::vector<uint32_t> results(uint32_t wants) const;
};

// The head of a graph whose first result is the logits, with nothing sampled.
Head head_of_logits(const Graph& graph);
// Appends the sampling operations that the device offers to a graph whose first result is the logits.
Head add_head(Graph& graph, const DeviceSampling& device);

}  // namespace switchyard
