// SPDX-License-Identifier: Apache-2.0
// Generating text from one session: shared by `run` and `chat`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/runtime.h"
#include "core/generate/text_generation.h"

namespace switchyard::cli {

// The flags of the sampling chain, but for the seed.
std::vector<CLI::Option*> add_sampling_flags(CLI::App& command, SamplingParams& params);

// Flags for sampling, and for the end of a text.
struct TextFlags {
  TextOptions options;
  std::string sampling = "auto";
  uint64_t seed = 0;
  CLI::Option* seed_option = nullptr;
  std::vector<CLI::Option*> sampling_options = {};
  // The options as a request takes them. Errors: usage.
  Result<TextOptions> resolved() const;
  // The sampling settings that the model recommends, but for those that were given.
  void recommended_by(const Program& program, SamplingParams& params) const;
};
void add_text_flags(CLI::App& command, TextFlags& flags, uint32_t default_tokens);

// Loads the model for requests with these options. If the host samples, its plans contain no sampler.
Result<Runtime> load_for_text(const Settings& settings, const TextOptions& options);

struct Generation {
  Outcome outcome;
  std::string text;
  std::string stopped;  // TextGeneration::stopped, or "interrupt"
  size_t prompt_tokens = 0;
};

// Feeds `prompt` and generates; `emit` gets the tokens as they come. `history` are the tokens that the session has seen
// before. Ctrl-C stops it within a step. Errors: usage, before anything is fed, for a parameter out of range or a
// prompt that does not fit the session; failures of this request alone.
Result<Generation> generate(const Runtime& runtime, Session& session, const TextOptions& options,
                            std::vector<int32_t> prompt, std::vector<int32_t> history,
                            const std::function<void(const TextPiece&)>& emit);

// Generated text as standard output gets it: on a terminal without control characters but line ends and tabs, since a
// model may say anything.
std::string for_output(const std::string& text);

// One line for people, and what --json adds.
std::string summary(const Runtime& runtime, const Generation& g);
nlohmann::ordered_json summary_json(const Generation& g);

}  // namespace switchyard::cli
