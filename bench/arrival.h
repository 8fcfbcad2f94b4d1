// SPDX-License-Identifier: Apache-2.0
// The cost of a long prompt for other requests: some sessions decode, then a prompt arrives. The times between the
// others' tokens are measured while it is read and without it.
//
// All share the loop that serves requests (core/serve/local_loop.h), without its prefix cache. Every session reads its
// own context and then decodes without end; each prompt is a further request.
#pragma once

#include <cstdint>
#include <span>

#include "bench/measure.h"
#include "core/base/status.h"
#include "core/sampling/sampler.h"

namespace switchyard::bench {

struct ArrivalLoad {
  uint32_t sessions = 16;      // that decode, 1 to 64
  uint32_t context = 1024;     // tokens that each session has read before
  uint32_t prompt = 2000;      // tokens of the prompt that arrives
  uint32_t arrivals = 3;       // one after the other
  uint32_t apart = 16;         // tokens that every session generates before each prompt arrival
  uint32_t prompt_rows = 256;  // ServiceOptions::prompt_rows; 0: the model's chunk
  SamplingParams sampling;     // each session has its own seed

  // Tokens that a session must hold, for a model whose largest step has `chunk` rows; and the number of sessions.
  uint32_t tokens(uint32_t chunk) const;
  uint32_t all_sessions() const { return sessions + 1; }
};

struct Arrival {
  Samples alone;   // from each token of a session to its next, with no prompt in between
  Samples beside;  // the same while a prompt is read: from its arrival to one token of everybody after its first
  Samples ttft;    // per arrival: until its first token
};

// On a model with room for the load. `text` holds as many ids as the context and the prompt take together. Errors:
// usage, for a load that is out of range or does not fit the model; cancelled, when keep_going says so; those of a
// request and of the devices.
Result<Arrival> measure_arrival(Model& model, const ArrivalLoad& load, std::span<const int32_t> text,
                                const KeepGoing& keep_going);

}  // namespace switchyard::bench
