// SPDX-License-Identifier: Apache-2.0
// The requests of the protocols other than chat completions.
#pragma once

#include <variant>

#include "server/protocol/chat_request.h"

namespace switchyard::server {

// POST /v1/completions.
struct CompletionRequest {
  using Prompt = std::variant<std::string, std::vector<int32_t>>;  // a text, or token ids
  Generation generation;
  std::vector<Prompt> prompts;
  bool echo = false;
  bool generates = true;  // false: the answer is the prompt alone
};
Refusal parse_completion(const nlohmann::ordered_json& body, const Defaults& defaults, CompletionRequest& to);

// POST /v1/responses. `repeated`: the fields that the response repeats.
Refusal parse_responses(const nlohmann::ordered_json& body, const Defaults& defaults, ChatRequest& to,
                        nlohmann::ordered_json& repeated);

// POST /v1/messages, Anthropic's form; also of /v1/messages/count_tokens, which `counts` only.
Refusal parse_anthropic(const nlohmann::ordered_json& body, const Defaults& defaults, bool counts, ChatRequest& to);

}  // namespace switchyard::server
