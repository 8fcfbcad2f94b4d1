// SPDX-License-Identifier: Apache-2.0
// Generating text in one session of a service: shared by `run` and `chat`.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/settings.h"
#include "core/base/status.h"
#include "core/generate/loaded_model.h"
#include "core/sampling/sampler.h"
#include "core/serve/turn.h"

namespace switchyard::cli {

// The flags of the sampling chain, but for the seed.
std::vector<CLI::Option*> add_sampling_flags(CLI::App& command, SamplingParams& params);

// Sets what the model recommends for sampling, but for the flags that were given; `params` has those.
void take_recommended(const Program& program, const std::vector<CLI::Option*>& flags, SamplingParams& params);

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
  void recommended_by(const Program& program, SamplingParams& params) const {
    take_recommended(program, sampling_options, params);
  }
};
void add_text_flags(CLI::App& command, TextFlags& flags, uint32_t default_tokens);

// A model that answers: the service that runs it, and a session of it with the text so far.
class Speaker {
 public:
  // Loads the model for requests with these options. If the host samples, its plans contain no sampler.
  static Result<std::unique_ptr<Speaker>> load(const Settings& settings, const TextOptions& options);
  ~Speaker();
  Speaker(const Speaker&) = delete;
  Speaker& operator=(const Speaker&) = delete;

  const LoadedModel& loaded() const { return service_->loaded(); }
  const Model& model() const { return *loaded().model; }
  const Tokenizer& tokenizer() const { return *loaded().tokenizer; }
  double load_seconds() const { return load_seconds_; }
  Service& service() const { return *service_; }
  const std::shared_ptr<Session>& session() const { return session_; }
  // Runs `work` where the session and the model may be used. Errors: those of `work`.
  Status on_loop(const std::function<Status()>& work) const {
    return service_->on_loop([&](Model&) { return work(); });
  }
  TextThread& thread() { return *thread_; }  // used within `on_loop`, but for what it says of its text
  const TextThread& thread() const { return *thread_; }

 private:
  Speaker() = default;

  std::unique_ptr<Service> service_;
  std::shared_ptr<Session> session_;
  std::unique_ptr<TextThread> thread_;
  double load_seconds_ = 0;
};

struct Generation {
  Finish finish;
  std::string stopped;  // Finish::reason, or "interrupt"
  size_t prompt_tokens = 0;
};

// Feeds what was read and generates; `emit` gets the tokens as they come, and the text goes on after them. Ctrl-C stops
// it within a step. Errors: usage, before anything is fed, for a parameter out of range or a prompt that does not fit
// the session; failures of this request.
Result<Generation> generate(Speaker& speaker, const TextThread::Reading& reading, const TextOptions& options,
                            const std::function<void(const Event&)>& emit);

// Generated text as standard output gets it: on a terminal without control characters but line ends and tabs, since a
// model may say anything.
std::string for_output(const std::string& text);

// One line for people, and what --json adds.
std::string summary(const Speaker& speaker, const Generation& g);
nlohmann::ordered_json summary_json(const Generation& g);

}  // namespace switchyard::cli
