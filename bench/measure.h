// Times of steps on a model that is loaded, and of the kernels inside them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/engine/model.h"
#include "core/plugin/host.h"

namespace switchyard::bench {

// Times of one thing, in seconds, unsorted.
struct Samples {
  std::vector<double> seconds;
  double median() const { return at(0.5); }
  double best() const { return at(0); }
  double worst() const { return at(1); }
  double at(double share) const;  // 0: the smallest
};

// One kernel over the measured steps.
struct KernelTime {
  uint64_t calls = 0;
  double seconds = 0;  // in all calls
};

struct Measurement {
  Samples samples;                            // one per prompt, or per generated token
  std::map<std::string, KernelTime> kernels;  // in one extra pass, so that tracing does not slow the samples
  uint64_t kernel_steps = 0;                  // of that pass: prompts, or tokens
};

// Called between runs; returning false stops with Code::cancelled.
using KeepGoing = std::function<bool()>;

// Prompts of these tokens, one after another in a session that starts afresh each time; one run to warm up.
Result<Measurement> measure_prefill(Model& model, Host& host, std::span<const int32_t> prompt, uint32_t runs,
                                    const KeepGoing& keep_going);

// Single tokens after a prompt of `context.size()` tokens; a few to warm up.
Result<Measurement> measure_decode(Model& model, Host& host, std::span<const int32_t> context, uint32_t tokens,
                                   const KeepGoing& keep_going);

// The largest resident set of this process so far, in bytes.
uint64_t peak_memory_bytes();

}  // namespace switchyard::bench
