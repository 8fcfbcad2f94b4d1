// SPDX-License-Identifier: Apache-2.0
// A Batch's data of a running request and of a step in flight. For batch.cpp and batch_step.cpp.
#pragma once

#include <vector>

#include "core/engine/batch.h"

namespace switchyard {

struct Batch::Running {
  Id id;
  Session& session;
  Request request;
  Sampler sampler;
  Outcome outcome = {};
  size_t fed = 0;       // of the prompt, in steps that were submitted
  size_t next_cut = 0;  // in Request::cuts
  uint32_t due = 0;     // tokens being sampled
  uint32_t entry = 0;   // in the devices' token buffers
  int32_t token = 0;    // fed by a decoding step: an id, or where the device finds it
  bool paused = false;
  bool counts_there = false;  // the device's counts are up to date with `sampler`
  std::vector<uint32_t> mask = {};
  Status mask_fault = {};
  SampleRow row = {};  // of the step being submitted
  uint64_t begin_ns = 0, first_ns = 0;

  bool reads_prompt() const { return fed < request.prompt.size(); }
  // Tokens up to the next cut, or the rest of the prompt.
  size_t until_cut() const {
    const size_t left = request.prompt.size() - fed;
    if (next_cut == request.cuts.size() || request.cuts[next_cut] <= session.position()) return left;
    return std::min<size_t>(left, request.cuts[next_cut] - session.position());
  }
  uint64_t drawn() const { return outcome.ids.size() + due; }
};

struct Batch::Flight {
  struct Part {
    Running* request = nullptr;  // NULL: it ended while the step was under way
    uint32_t tokens = 0;
    bool blind = false;  // feeds a token that the host has not seen
    bool draws = false;
    SamplingPath path = SamplingPath::logits;
    uint32_t sample_row = 0, logit_row = 0;
  };
  std::vector<Part> parts;
  uint32_t wants = 0, logit_rows = 0, sample_rows = 0;

  void clear() {
    parts.clear();
    wants = logit_rows = sample_rows = 0;
  }
  void forget(const Running& r) {
    for (Part& p : parts) {
      if (p.request == &r) p.request = nullptr;
    }
  }
};

}  // namespace switchyard
