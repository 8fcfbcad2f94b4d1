// SPDX-License-Identifier: Apache-2.0
#include "core/engine/sampling_path.h"

#include <array>

namespace switchyard {
namespace {

struct Step {
  uint32_t flag;
  const char* name;
};
constexpr std::array<Step, 11> kSteps = {{{SWY_SAMPLES_GREEDY, "greedy"},
                                          {SWY_SAMPLES_SEEDED, "seeds"},
                                          {SWY_SAMPLES_TEMPERATURE, "temperature"},
                                          {SWY_SAMPLES_TOP_K, "top-k"},
                                          {SWY_SAMPLES_TOP_P, "top-p"},
                                          {SWY_SAMPLES_MIN_P, "min-p"},
                                          {SWY_SAMPLES_MASK, "token masks"},
                                          {SWY_SAMPLES_PENALTIES, "penalties"},
                                          {SWY_SAMPLES_BIAS, "logit bias"},
                                          {SWY_SAMPLES_LOGPROBS, "log-probabilities"},
                                          {SWY_SAMPLES_STOP_IDS, "stop ids"}}};

// The steps of the chain that a request uses.
uint32_t needs(const Sampler& s, bool masked) {
  const swy_sample_params& p = s.params();
  uint32_t needed = 0;
  if (p.inv_temperature == 0.0f) {
    needed |= SWY_SAMPLES_GREEDY;
  } else {
    needed |= SWY_SAMPLES_SEEDED | SWY_SAMPLES_TEMPERATURE;
    if (p.top_k > 0) needed |= SWY_SAMPLES_TOP_K;
    if (p.top_p_q15 < SWY_TOP_P_OFF) needed |= SWY_SAMPLES_TOP_P;
    if (p.min_p_q30 != 0) needed |= SWY_SAMPLES_MIN_P;
  }
  if (masked) needed |= SWY_SAMPLES_MASK;
  if (!s.counts().empty()) needed |= SWY_SAMPLES_PENALTIES;
  if (!s.biases().empty()) needed |= SWY_SAMPLES_BIAS;
  if ((p.flags & SWY_SAMPLE_LOGPROB) != 0) needed |= SWY_SAMPLES_LOGPROBS;
  if (!s.stop_ids().empty()) needed |= SWY_SAMPLES_STOP_IDS;
  return needed;
}

// The steps of the chain that the device performs on a row before the host completes it from candidates.
constexpr uint32_t kCandidateSteps =
    SWY_SAMPLES_MASK | SWY_SAMPLES_PENALTIES | SWY_SAMPLES_BIAS | SWY_SAMPLES_TEMPERATURE | SWY_SAMPLES_LOGPROBS;

// Why the device cannot take these steps of the chain; empty when it can.
std::string lacks(const Sampler& s, uint32_t needed, const DeviceSampling& d) {
  for (const Step& step : kSteps) {
    if ((needed & ~d.steps & step.flag) != 0) return fmt::format("{} does not sample {}", d.device, step.name);
  }
  const struct {
    uint32_t step, ours, theirs;
    uint64_t asked;
    const char* what;
  } limits[] = {
      {SWY_SAMPLES_TOP_K, UINT32_MAX, d.limits.max_top_k, static_cast<uint64_t>(s.params().top_k), "as top-k"},
      {SWY_SAMPLES_BIAS, kMaxRowBiases, d.limits.max_bias, s.biases().size(), "biases"},
      {SWY_SAMPLES_STOP_IDS, kMaxRowStops, d.limits.max_stop_ids, s.stop_ids().size(), "stop ids"}};
  for (const auto& l : limits) {
    const uint32_t most = l.theirs == 0 ? l.ours : std::min(l.ours, l.theirs);
    if ((needed & l.step) != 0 && l.asked > most) {
      return fmt::format("{} takes at most {} {}, not {}", d.device, most, l.what, l.asked);
    }
  }
  return {};
}

}  // namespace

const char* path_name(SamplingPath path) {
  switch (path) {
    case SamplingPath::logits:
      return "logits";
    case SamplingPath::candidates:
      return "candidates";
    default:
      return "fused";
  }
}

Result<std::optional<SamplingPath>> parse_path(std::string_view text) {
  if (text == "auto") return std::optional<SamplingPath>();
  for (const SamplingPath p : {SamplingPath::logits, SamplingPath::candidates, SamplingPath::fused}) {
    if (text == path_name(p)) return std::optional(p);
  }
  return error(Code::usage, "--sampling is '{}'; it must be auto, fused, candidates or logits", text);
}

Result<PathChoice> choose_path(std::optional<SamplingPath> asked, const Sampler& sampler, bool masked,
                               const DeviceSampling& d) {
  const uint32_t needed = needs(sampler, masked);
  const auto absent = [&](const char* what) {
    return d.why_not.empty() ? fmt::format("{} offers no {}", d.device, what) : d.why_not;
  };
  std::string no_token = d.token ? lacks(sampler, needed, d) : absent("sampler");
  const uint32_t most = d.limits.max_logprobs == 0 ? kTopLogprobs : std::min(kTopLogprobs, d.limits.max_logprobs);
  if (no_token.empty() && sampler.top_logprobs() > most) {
    no_token = fmt::format("{} gives the {} most likely tokens, not {}", d.device, most, sampler.top_logprobs());
  }
  std::string no_candidates = d.candidates ? lacks(sampler, needed & kCandidateSteps, d) : absent("candidates");
  if (asked == SamplingPath::logits) return PathChoice{SamplingPath::logits, "asked for"};
  if (asked == SamplingPath::fused) {
    if (no_token.empty()) return PathChoice{SamplingPath::fused, "asked for"};
    return error(Code::unsupported, "--sampling fused cannot serve this request: {}; use auto, or logits", no_token);
  }
  if (asked == SamplingPath::candidates) {
    if (no_candidates.empty()) return PathChoice{SamplingPath::candidates, "asked for"};
    return error(Code::unsupported, "--sampling candidates cannot serve this request: {}; use auto, or logits",
                 no_candidates);
  }
  if (no_token.empty()) return PathChoice{SamplingPath::fused, d.device + " covers the request"};
  // Counts would have to be sent for every token, which is as much as reading the logits.
  if (no_candidates.empty() && !sampler.counts().empty()) no_candidates = "penalties need the counts on the device";
  if (no_candidates.empty()) return PathChoice{SamplingPath::candidates, no_token};
  return PathChoice{SamplingPath::logits, no_candidates == no_token ? no_token : no_token + "; " + no_candidates};
}

}  // namespace switchyard
