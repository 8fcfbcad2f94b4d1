// SPDX-License-Identifier: Apache-2.0
// Where a request's tokens are sampled: on the device, on the host from the device's candidates, or on the host from
// the row of logits. Decided per request, for its whole chain, by the abilities of the device that produces the logits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/sampling/sampler.h"
#include "switchyard/extensions.h"

namespace switchyard {

enum class SamplingPath { logits, candidates, fused };

const char* path_name(SamplingPath path);
// "auto" is none. Errors: usage, with the names there are.
Result<std::optional<SamplingPath>> parse_path(std::string_view text);

// The sampling abilities of the head's device, as far as a plan could use them.
struct DeviceSampling {
  std::string device;       // "cuda:0"
  bool token = false;       // SAMPLE
  bool candidates = false;  // TOP_CANDIDATES
  uint32_t steps = 0;       // SWY_SAMPLES_*
  swy_sampling limits{};    // 0: none
  std::string why_not;      // when a kernel was announced and could not be planned
};

// The most biases and stop ids of one row that fit into a step's block.
inline constexpr uint32_t kMaxRowBiases = 1024;
inline constexpr uint32_t kMaxRowStops = 64;
// How many ids a device lists if a request asks for likely tokens, and if the host completes from candidates.
inline constexpr uint32_t kTopLogprobs = 20;
inline constexpr uint32_t kCandidates = 128;

struct PathChoice {
  SamplingPath path = SamplingPath::logits;
  std::string reason;  // "cuda:0 covers the request"
};

// The path of a request. `masked`: it has a token mask. Errors: unsupported, when `asked` cannot be served, with the
// reason.
Result<PathChoice> choose_path(std::optional<SamplingPath> asked, const Sampler& sampler, bool masked,
                               const DeviceSampling& device);

}  // namespace switchyard
