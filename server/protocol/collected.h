// SPDX-License-Identifier: Apache-2.0
// Collected: one choice's text, put together from its deltas.
#pragma once

#include <string>
#include <vector>

#include "server/protocol/answer.h"

namespace switchyard::server {

struct Collected {
  struct Item {
    enum class Kind { reasoning, content, call };
    Kind kind = Kind::content;
    std::string id, call_id;
    std::string name;  // of the function
    std::string text;  // or the arguments' JSON text
  };
  std::vector<Item> items;
  std::vector<TokenLogprob> logprobs;
  ChoiceEnd end;

  // Whether this delta begins a new item.
  bool begins(const Delta& delta) const;
  // Adds it to the last item, or to a new one.
  Item& add(const Delta& delta);
  std::string all(Item::Kind kind) const;  // the texts of one kind
  bool has(Item::Kind kind) const;
};

// A serialised value; text that is not UTF-8 becomes U+FFFD.
std::string to_text(const nlohmann::ordered_json& value);

// {"prompt_tokens", …} of all choices.
nlohmann::ordered_json openai_usage(const std::vector<ChoiceEnd>& ends, uint32_t prompt_tokens);
nlohmann::ordered_json openai_logprobs(const std::vector<TokenLogprob>& tokens);

}  // namespace switchyard::server
