// SPDX-License-Identifier: Apache-2.0
// ChatModel: the text side of a model: from a conversation to a prompt's tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"
#include "server/protocol/chat_request.h"
#include "server/protocol/output_parser.h"

namespace switchyard::server {

struct ChatPrompt {
  std::vector<int32_t> ids;
  std::vector<uint32_t> checkpoints;  // GenerationRequest::checkpoints
  OutputForm form;
};

// Immutable; all members are thread-safe.
class ChatModel {
 public:
  // `tokenizer` outlives it. `source`: the chat template; "": the model has none, and takes no conversations. Errors:
  // as ChatTemplate::parse.
  static Result<ChatModel> create(const Tokenizer& tokenizer, const std::string& source);

  // What people write and models answer stays text: it can neither end a turn nor begin another.
  Refusal prompt(const ChatRequest& request, ChatPrompt& to) const;
  const Tokenizer& tokenizer() const { return *tokenizer_; }

  // For a request that wants a call (tool_choice): a pattern that only calls match, for TextOptions::allow_regex.
  // `reasoning`: the text begins within the reasoning. Refused where the model's form of a call has no such pattern.
  Refusal call_pattern(const ChatRequest& request, bool reasoning, std::string& to) const;

 private:
  explicit ChatModel(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  std::vector<uint32_t> checkpoints(const std::vector<int32_t>& ids) const;

  const Tokenizer* tokenizer_;
  std::optional<ChatTemplate> template_;
  bool tools_ = false;      // the template prints tools
  bool functions_ = false;  // calls are written as <function=NAME>
  bool thinks_ = false;     // there is reasoning, and the template may leave its opening to the model
};

}  // namespace switchyard::server
