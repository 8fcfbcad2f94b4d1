// Where a request's tokens are drawn: on the device, on the host from the device's candidates, or on the host from the
// row of logits. Decided per request, for its whole chain, by what the device that makes the logits says it can do.
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

// What the device of the head offers, as far as a plan could use it.
struct DeviceSampling {
  std::string device;       // "cuda:0"
  bool token = false;       // SAMPLE
  bool candidates = false;  // TOP_CANDIDATES
  uint32_t steps = 0;       // SWY_SAMPLES_*
  swy_sampling limits{};    // 0: none
  std::string why_not;      // when a kernel was announced and could not be planned
};

// The most biases and stop ids of one row that a step's block has room for.
inline constexpr uint32_t kMaxRowBiases = 1024;
inline constexpr uint32_t kMaxRowStops = 64;
// Ids that a device lists where a request asks for likely tokens, and where the host finishes from candidates.
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
