// SPDX-License-Identifier: Apache-2.0
// The figures of a load: latencies, throughput, failures, and the goodput under limits.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/load/load.h"
#include "bench/measure.h"

namespace switchyard::bench {

// Seconds; 0: none.
struct LoadLimits {
  double first_token = 0, per_token = 0;
  bool any() const { return first_token > 0 || per_token > 0; }
};

struct LoadFigures {
  struct Failure {
    Fault fault = Fault::none;
    int status = 0;  // with Fault::status
    uint32_t count = 0;
    std::string message;  // of the first
  };
  struct Turn {
    Samples first_token;
    double prompt_tokens = 0, cached_tokens = 0;  // means
  };

  uint32_t requests = 0, ended_well = 0;
  double seconds = 0;
  std::vector<Failure> failures;  // the most frequent first
  // Of the requests that ended well. gaps: between pieces of text; per_token: a request's mean after its first token.
  Samples first_token, gaps, per_token, whole;
  double prompt_tokens = 0, cached_tokens = 0, answer_tokens = 0;  // means
  bool counted = false;                                            // by the server; else a piece of text is a token
  // Tokens: of a closed loop while all clients were busy.
  double tokens_per_second = 0, requests_per_second = 0;
  uint32_t good = 0;  // that kept all limits
  double good_per_second = 0;
  std::vector<Turn> turns;       // of conversations with several
  double processor_seconds = 0;  // of the load generator
  double processor_share = 0;    // of one core
  bool interrupted = false;
};

LoadFigures figures_of(const LoadResult& result, const LoadLimits& limits);

std::string render_load(const Load& load, const LoadFigures& figures, const LoadLimits& limits);
nlohmann::ordered_json load_json(const Load& load, const LoadFigures& figures, const LoadLimits& limits);

}  // namespace switchyard::bench
