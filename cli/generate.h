// Generating text from one session: shared by `run` and `chat`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/runtime.h"
#include "core/sampling/sampler.h"

namespace switchyard::cli {

struct SamplingFlags {
  SamplingParams params;
  uint64_t seed = 0;
  bool ignore_eos = false;
  CLI::Option* seed_option = nullptr;
  SamplingParams resolved() const;  // with the seed, if one was given
};
void add_sampling(CLI::App& command, SamplingFlags& flags);

struct Generation {
  std::vector<int32_t> ids;
  std::string text;
  const char* stopped = "";  // "end", "length", "context" or "interrupt"
  size_t prompt_tokens = 0;
  double prefill_seconds = 0, decode_seconds = 0;
};

// Feeds `prompt` and draws up to `limit` tokens, past the end of the text with `ignore_eos`; `emit` gets the text as it
// completes. Ctrl-C stops it within a step. Errors: usage, before anything is fed, when the prompt does not fit the
// session.
Result<Generation> generate(const Runtime& runtime, Session& session, Sampler& sampler, std::span<const int32_t> prompt,
                            uint32_t limit, bool ignore_eos, const std::function<void(const std::string&)>& emit);

std::string summary(const Runtime& runtime, const Generation& g, uint64_t seed);

}  // namespace switchyard::cli
