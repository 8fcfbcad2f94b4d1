// SPDX-License-Identifier: Apache-2.0
// Times of steps on a loaded model, of the kernels inside them, and of the runtime's own work.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/draft/draft_counts.h"
#include "core/draft/speculation.h"
#include "core/engine/model_drafter.h"
#include "core/engine/sampling_path.h"
#include "core/plugin/host.h"

namespace switchyard::bench {

// Times of one thing, in seconds, unsorted.
struct Samples {
  std::vector<double> seconds;
  double median() const { return at(0.5); }
  double best() const { return at(0); }
  double worst() const { return at(1); }
  double mean() const;
  double at(double share) const;  // 0: the smallest
};

// One kernel over the measured steps.
struct KernelTime {
  uint64_t calls = 0;
  double seconds = 0;  // in all calls
};

// The runtime's work besides the kernels, per step: a prompt, or a token of every request.
struct Overhead {
  double seconds = 0;       // by the clock
  double core_seconds = 0;  // processor time of the calling thread outside the plugins
  double wait_seconds = 0;  // that thread in barriers, and waiting for devices
  double lists = 0;
  double barriers = 0;

  double core_share() const { return seconds == 0 ? 0 : core_seconds / seconds; }
  double wait_share() const { return seconds == 0 ? 0 : wait_seconds / seconds; }
};

// Called between runs; returning false stops with Code::cancelled.
using KeepGoing = std::function<bool()>;

// One kind of step, again and again. Not thread-safe, nor may two steppers of one model be within a turn at a time.
class Stepper {
 public:
  virtual ~Stepper() = default;
  // Goes back to the same state, whatever was done before.
  virtual Status begin() = 0;
  virtual Status step() = 0;
  // Releases the turn's memory; the next turn begins with `begin`.
  virtual void end() {}
  // Steps that fit into a turn.
  virtual uint32_t most_steps() const = 0;

  // Of the tokens sampled until the last turn's end: bytes of one request that came to the host, and where it was
  // sampled.
  virtual uint64_t read_bytes() const { return 0; }
  virtual PathChoice path() const { return {}; }
  virtual DraftCounts drafts() const { return {}; }  // likewise, of all requests
};

// What guesses for the requests of a stepper.
struct Drafting {
  // A step with drafts gives some tokens and the next one others: one step of the stepper is this many tokens a
  // request.
  static constexpr uint32_t kTokens = 16;

  Speculation by = Speculation::off;
  DraftModel* model = nullptr;  // of Speculation::model
  uint32_t tokens_a_step() const { return by == Speculation::off ? 1 : kTokens; }
};

// Sessions that have read a context, for steppers to begin from: a turn forks them. Those of the i-th request have read
// the text from i * kPromptsApart on.
class Contexts {
 public:
  // Between the beginnings of the texts of two requests, in tokens.
  static constexpr uint32_t kPromptsApart = 37;

  Contexts(Model& model, std::span<const int32_t> text) : model_(model), text_(text) {}

  // `count` sessions that have read `tokens` each. Those of another depth are given back. Errors: cancelled, when it
  // would take longer than `seconds` by the time of the first 64 tokens, with the estimate; usage, when the text is too
  // short; out_of_device_memory.
  Status read(uint32_t tokens, uint32_t count, double seconds, const KeepGoing& keep_going);

  Model& model() { return model_; }
  Session& session(uint32_t i) { return *sessions_[i]; }
  uint32_t depth() const { return depth_; }
  // The tokens after the context of request i.
  std::span<const int32_t> rest(uint32_t i) const { return text_.subspan(uint64_t{i} * kPromptsApart + depth_); }

 private:
  Model& model_;
  std::span<const int32_t> text_;
  std::vector<std::unique_ptr<Session>> sessions_;
  uint32_t depth_ = 0;
};

// Whole prompts, each in a session that starts afresh. `prompt` outlives it. Errors: as of Contexts::read.
Result<std::unique_ptr<Stepper>> prompt_stepper(Model& model, std::span<const int32_t> prompt, double seconds);

// Single tokens of the text after the first context of `contexts`. The text itself is fed, so that it cannot fall into
// a loop; sampling from the logits is not part of a step.
std::unique_ptr<Stepper> text_stepper(Contexts& contexts, uint32_t most);

// A token of each of `requests` requests per step, all on one loop (core/serve/local_loop.h), sampled by `sampling` and
// fed back. Request i has the i-th seed after that of `sampling`. `path`: none means what the device supports. With
// `drafting` a step is so many tokens of every request on average, and what the policy has measured stays from turn to
// turn.
std::unique_ptr<Stepper> draw_stepper(Contexts& contexts, uint32_t requests, const SamplingParams& sampling,
                                      std::optional<SamplingPath> path, uint32_t most, const Drafting& drafting = {});

// One turn: `warm` steps, then `count` that are timed, at most most_steps() in all.
Status take_turn(Stepper& stepper, uint32_t warm, uint32_t count, std::vector<double>& seconds);

// In separate turns, since observing slows steps.
Status watch_turn(Stepper& stepper, Model& model, Host& host, uint32_t warm, uint32_t steps, Overhead& overhead);
// `steps` steps' kernels, by name.
Status trace_turn(Stepper& stepper, Model& model, Host& host, uint32_t warm, uint32_t steps,
                  std::map<std::string, KernelTime>& kernels);

}  // namespace switchyard::bench
