// SPDX-License-Identifier: Apache-2.0
// A load on a server that speaks the OpenAI protocol: what is asked for, and what came of each request.
//
// Closed loop: each of `clients` sends its next request when its last one has ended. Open loop (`rate`): requests
// arrive by a Poisson process, whether or not earlier ones have ended, as those of independent users do; a server that
// is too slow then shows it, since the time to the first token counts from the arrival.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace switchyard::bench {

// Drawn log-uniformly (bench/lengths.h).
struct LengthRange {
  uint32_t least = 1, most = 1;
};
// "128" or "16-512". Errors: usage, with `option` in front.
Result<LengthRange> parse_lengths(const std::string& text, const std::string& option);

struct Endpoint {
  std::string host, port = "80", path;  // path: before /v1, such as "" or "/proxy"
};
// "http://127.0.0.1:8080", also with "/v1" at the end. Errors: usage.
Result<Endpoint> parse_url(const std::string& url);

struct Load {
  Endpoint endpoint;
  std::string api_key;         // "": none
  std::string model;           // the name in requests
  bool chat = true;            // /v1/chat/completions; false: /v1/completions
  double rate = 0;             // conversations that arrive per second; 0: closed loop
  uint32_t clients = 1;        // of a closed loop
  uint32_t requests = 0;       // that count; 0: as many as `seconds` allow
  double seconds = 0;          // after which none begins any more; 0: no limit
  uint32_t warm_up = 0;        // conversations before those that count
  LengthRange prompt, answer;  // tokens
  uint32_t shared = 0;         // tokens at the beginning of every conversation, the same in all
  uint32_t turns = 1;          // of a conversation; each carries the whole text so far
  uint64_t seed = 1;
  double timeout = 600;  // seconds for one request
  double temperature = 1;
  bool ends_early = false;  // answers may be shorter than asked for, by the model's end-of-text token
  std::string extra;        // further fields of every request, as a JSON object; "": none
};

// How a request ended.
enum class Fault {
  none,
  connect,    // no connection
  status,     // an HTTP status other than 200
  not_sse,    // 200, and no event stream
  malformed,  // an event that is not of the protocol
  reported,   // the stream reported an error
  cut,        // the connection ended within the answer
  timeout,
  crowded,  // too many are open already: the request was not sent
};
constexpr uint32_t kFaults = 9;
const char* fault_name(Fault fault);

// One request. Times are in seconds on one clock.
struct Exchange {
  double begin = 0;                     // arrival; of a later turn, and in a closed loop, when it was sent
  double first = 0, last = 0, end = 0;  // first and last text of the answer; 0: there was none
  std::vector<float> gaps;              // between pieces of text
  uint32_t prompt_tokens = 0, cached_tokens = 0, tokens = 0;  // as the server counts them; 0: it does not
  uint32_t pieces = 0;                                        // of text
  uint32_t turn = 0;
  bool counts = true;
  Fault fault = Fault::none;
  int status = 0;       // of HTTP
  std::string message;  // of a fault
  std::string text;     // the answer

  // The server's count, or one token per piece.
  uint32_t drawn() const { return tokens != 0 ? tokens : pieces; }
  bool ok() const { return fault == Fault::none; }
  double first_token() const { return first - begin; }
  double per_token() const { return drawn() < 2 ? 0 : (last - first) / (drawn() - 1); }
};

struct LoadResult {
  std::string model;                // its name, as the load or the server has it
  std::vector<Exchange> exchanges;  // in the order of their ends, without those that warm up
  double begin = 0, end = 0;        // of those that count
  // Of a closed loop: when the first client had nothing more to send. Until then all were busy.
  double steady_end = 0;
  uint64_t steady_pieces = 0;    // of text, from `begin` to `steady_end`
  double processor_seconds = 0;  // of this process, from `begin` to `end`
  double tokens_per_word = 0;    // of the prompts; 0: the server does not count tokens
  bool interrupted = false;
};

}  // namespace switchyard::bench
