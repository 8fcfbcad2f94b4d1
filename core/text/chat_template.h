// SPDX-License-Identifier: Apache-2.0
// ChatTemplate: a conversation to the text that a model was trained on.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "core/base/status.h"
#include "core/text/jinja/template.h"

namespace switchyard {

// Immutable; all members are thread-safe.
class ChatTemplate {
 public:
  // The text of a `chat_template.jinja`, or of `chat_template` in `tokenizer_config.json`. Errors: as jinja::Template.
  static Result<ChatTemplate> parse(std::string_view source);

  // `messages`: an array of {"role", "content", ...}, as in the chat APIs. `add_generation_prompt`: end with the
  // opening of the assistant's answer. `tools`: an array of tool schemas, or null. `extra`: an object of further
  // variables, such as enable_thinking, bos_token and eos_token, which win over the ones above. Key order is kept,
  // since templates print it. Errors: usage when `extra` is no object or the template refuses the conversation
  // (raise_exception); otherwise as jinja::Template::render.
  Result<std::string> render(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                             const nlohmann::ordered_json& tools, const nlohmann::ordered_json& extra,
                             const jinja::Limits& limits = {}) const;
  // Without tools and further variables.
  Result<std::string> render(const nlohmann::ordered_json& messages, bool add_generation_prompt) const;

 private:
  explicit ChatTemplate(jinja::Template parsed) : template_(std::move(parsed)) {}

  jinja::Template template_;
};

}  // namespace switchyard
