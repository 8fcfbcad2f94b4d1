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
#include "server/app/answer_constraint.h"
#include "server/protocol/chat_request.h"
#include "server/protocol/output_parser.h"

namespace switchyard::server {

struct ChatPrompt {
  std::vector<int32_t> ids;
  std::vector<uint32_t> checkpoints;  // GenerationRequest::checkpoints
  OutputForm form;
  Reasoning reasoning = Reasoning::none;
};

// Whether a tool's calls must fit its schema.
bool is_strict(const nlohmann::ordered_json& tool);

// Immutable; all members are thread-safe.
class ChatModel {
 public:
  // `tokenizer` outlives it. `source`: the chat template; "": the model has none, and takes no conversations. Errors:
  // as ChatTemplate::parse.
  static Result<ChatModel> create(const Tokenizer& tokenizer, const std::string& source);

  // What people write and models answer stays text: it can neither end a turn nor begin another.
  Refusal prompt(const ChatRequest& request, ChatPrompt& to) const;
  const Tokenizer& tokenizer() const { return *tokenizer_; }

  // Refused where a constraint of the answer would limit the model's reasoning as well.
  Refusal check_constraint(const ChatPrompt& prompt) const;
  // For ConstraintKind::tool_calls, from the strictest on: in the later ones the arguments of tools that are not strict
  // are any object, for schemas that are not supported. Refused where the model's form of a call has no constraint.
  Refusal call_constraints(const ChatRequest& request, std::vector<std::string>& to) const;

 private:
  explicit ChatModel(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  std::vector<uint32_t> checkpoints(const std::vector<int32_t>& ids) const;

  const Tokenizer* tokenizer_;
  std::optional<ChatTemplate> template_;
  bool tools_ = false;      // the template prints tools
  bool functions_ = false;  // calls are written as <function=NAME>
  bool calls_ = false;      // calls are between <tool_call> and its end
  bool channels_ = false;   // reasoning and answers are in channels
  bool thinks_ = false;     // there is reasoning, and the template may leave its opening to the model
};

}  // namespace switchyard::server
