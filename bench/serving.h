// SPDX-License-Identifier: Apache-2.0
// Mixed serving: how long users wait, and how many tokens they get, when several requests of mixed lengths share a
// model.
//
// A closed loop: each of `concurrency` clients sends its next request as soon as its last one has ended, so that the
// load stays the same. All share the loop that serves requests (core/serve/local_loop.h), without its prefix cache:
// prompts are read in parts while the others decode. The first request of every client warms up and is not counted.
// Later ones count, until as many have ended as were asked for; further ones keep the loop busy.
//
// Lengths are drawn log-uniformly, since real ones span orders of magnitude and short ones are common: of a prompt
// floor(exp(u)) with u uniform between ln(prompt_min) and ln(prompt_max + 1), of an answer likewise. Prompts are
// stretches of a text, from a uniformly drawn place on. One seed gives the same requests on every backend.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bench/measure.h"
#include "core/base/status.h"
#include "core/sampling/sampler.h"

namespace switchyard::bench {

struct ServingLoad {
  uint32_t concurrency = 8;  // 1 to 64
  uint32_t requests = 0;     // that count; 0: three per session, at least 16
  uint32_t prompt_min = 16, prompt_max = 512;
  uint32_t output_min = 8, output_max = 128;
  uint64_t seed = 1;
  double seconds = 60;         // when the measurement ends early, with the requests that it has
  SamplingParams sampling;     // each request has its own seed
  uint32_t prompt_rows = 256;  // ServiceOptions::prompt_rows

  uint32_t asked() const { return requests != 0 ? requests : std::max(3 * concurrency, 16u); }
  // Tokens that the context of a session must hold; there are as many sessions as `concurrency` says.
  uint32_t context() const { return prompt_max + output_max; }
};

struct RequestShape {
  uint32_t prompt = 0, output = 0;  // tokens
  double place = 0;                 // of the prompt in the text: 0 is its start, 1 the last place where it fits
};
// The first `count` requests of a load.
std::vector<RequestShape> request_shapes(const ServingLoad& load, uint32_t count);

struct Serving {
  uint32_t requests = 0;  // that ended, and count; fewer than asked() if the time was over before
  Samples ttft;           // per request that counts: from its arrival to its first token
  Samples itl;            // from each of its tokens to the next
  // Throughput, of all tokens that were written from the first request that counts to the end: seconds for each equal
  // part of `tokens` tokens, some twelve parts.
  Samples parts;
  uint32_t tokens = 0;
};

// On a model with room for the load. `text` holds at least prompt_max ids. If the time is over before the first counted
// request has ended, `requests` is 0. Errors: usage, for a load that is out of range or does not fit the model;
// cancelled, when keep_going says so; those of a request and of the devices.
Result<Serving> measure_serving(Model& model, const ServingLoad& load, std::span<const int32_t> text,
                                const KeepGoing& keep_going);

}  // namespace switchyard::bench
