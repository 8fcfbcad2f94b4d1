// Times of steps on a model that is loaded, of the kernels inside them, and of what the runtime itself does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/engine/batch.h"
#include "core/engine/session.h"
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

// What the runtime did around the kernels, per step: a prompt, or a token.
struct Overhead {
  double seconds = 0;       // by the clock
  double core_seconds = 0;  // processor time of the calling thread outside the plugins
  double wait_seconds = 0;  // that thread in barriers, and waiting for devices
  double lists = 0;
  double barriers = 0;

  double core_share() const { return seconds == 0 ? 0 : core_seconds / seconds; }
  double wait_share() const { return seconds == 0 ? 0 : wait_seconds / seconds; }
};

// Samples are of undisturbed steps; kernels and overhead come from steps of their own, since watching slows them.
struct Measurement {
  Samples samples;  // one per prompt, or per generated token
  Overhead overhead;
  std::map<std::string, KernelTime> kernels;
  uint64_t kernel_steps = 0;  // prompts, or tokens
};

// Called between runs; returning false stops with Code::cancelled.
using KeepGoing = std::function<bool()>;

// `prompt`, again and again in a session that starts afresh each time; one run to warm up.
Result<Measurement> measure_prefill(Model& model, Host& host, std::span<const int32_t> prompt, uint32_t runs,
                                    const KeepGoing& keep_going);

// Tokens that measure_decode takes beyond those of the context and those that it times.
constexpr uint32_t kDecodeExtra = 36;

// Single steps over the tokens of `text` after the first `depth`, which are the context; a few steps to warm up. What
// is fed is the text itself, so that it cannot fall into a loop; drawing from the logits is not part of the time.
// `text` holds depth + tokens + kDecodeExtra ids.
Result<Measurement> measure_decode(Model& model, Host& host, std::span<const int32_t> text, uint32_t depth,
                                   uint32_t tokens, const KeepGoing& keep_going);

// One way of drawing, and what its steps took: single tokens of each of its requests, drawn and fed back.
struct Drawing {
  std::optional<SamplingPath> path;  // none: as the device covers the request
  uint32_t sessions = 1;             // with a request each, all in one batch
  PathChoice choice = {};
  uint64_t read_bytes = 0;  // per token of one request, that came to the host
  Measurement m = {};
};

// Between the beginnings of the prompts of two sessions of one way, in tokens.
constexpr uint32_t kPromptsApart = 37;

// Steps of all ways, one step of each in turns, so that what else the machine does falls on all alike. The draws are
// part of the time. Session i of a way reads `depth` tokens of `text` from i * kPromptsApart on, and draws with the
// i-th seed after that of `sampling`: those of two ways draw the same. The model has room for all sessions together.
// Steps run ahead of the host's reading only with a single way.
Status measure_drawing(Model& model, Host& host, std::span<const int32_t> text, uint32_t depth,
                       const SamplingParams& sampling, uint32_t tokens, std::span<Drawing> ways,
                       const KeepGoing& keep_going);

}  // namespace switchyard::bench
