// SPDX-License-Identifier: Apache-2.0
// Answer: what a request's client reads, in the form of its protocol: whole, or event by event as it comes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/protocol/api_error.h"
#include "server/protocol/output_parser.h"

namespace switchyard::server {

// A token in a protocol's logprobs.
struct TokenLogprob {
  std::string bytes;  // of the token, perhaps part of a character
  float logprob = 0;  // NaN: it has none, as a text's first token
  std::vector<std::pair<std::string, float>> top = {};
};

// What a token, or the end of the text, added to one choice.
struct Part {
  uint32_t choice = 0;
  std::vector<Delta> deltas;
  std::vector<TokenLogprob> logprobs;
};

struct ChoiceEnd {
  std::string reason;   // "stop", "length" or "tool_calls"
  std::string stopped;  // Finish::reason: "end", "stop", …
  Usage usage;
  uint32_t reasoning_tokens = 0;
  uint64_t seed = 0;
};

struct AnswerHead {
  std::string id, model, fingerprint;
  int64_t created = 0;  // seconds since 1970
  uint32_t choices = 1;
  bool include_usage = false;
  bool logprobs = false;
  bool tools = false;
  uint32_t prompt_tokens = 0;
  // A new id with this prefix.
  std::function<std::string(const char* prefix)> new_id;
};

// The calls come in this order: start, add and end for each choice, finish. Or `fail` after any of them, and no more.
// Each returns what is to be sent; for an answer that comes whole that is empty until `finish` or `fail`.
class Answer {
 public:
  virtual ~Answer() = default;
  virtual std::string start() = 0;
  virtual std::string add(const Part& part) = 0;
  virtual std::string end(uint32_t choice, const ChoiceEnd& end) = 0;
  virtual std::string finish() = 0;
  virtual std::string fail(const ApiError& error) = 0;
};

enum class Protocol { chat, completions, responses, messages };

std::unique_ptr<Answer> chat_answer(AnswerHead head, bool stream);
// A prompt that a choice begins with.
struct Echo {
  std::string text;
  std::vector<TokenLogprob> logprobs = {};
};
// `echo`: of each choice; empty: none has one. Choices of one prompt share theirs.
std::unique_ptr<Answer> completion_answer(AnswerHead head, bool stream, std::vector<std::shared_ptr<const Echo>> echo);
std::unique_ptr<Answer> responses_answer(AnswerHead head, bool stream, const nlohmann::ordered_json& request);
std::unique_ptr<Answer> messages_answer(AnswerHead head, bool stream);

// What keeps a connection alive while there is nothing to send.
std::string ping(Protocol protocol);

}  // namespace switchyard::server
