// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "server/protocol/requests.h"

namespace switchyard::server {

using json = nlohmann::ordered_json;

namespace {

bool is_id(const json& value) {
  return value.is_number_integer() && value.get<int64_t>() >= 0 && value.get<int64_t>() <= INT32_MAX;
}

bool are_ids(const json& list) {
  return list.is_array() && !list.empty() && std::all_of(list.begin(), list.end(), is_id);
}

// A text, token ids, or an array of either.
void read_prompts(Fields& fields, CompletionRequest& to) {
  const json* prompt = fields.find("prompt");
  const char* must = "a string, an array of token ids, or an array of either";
  if (prompt == nullptr) return fields.refuse("prompt", must, nullptr);
  if (prompt->is_string()) to.prompts.emplace_back(prompt->get<std::string>());
  if (are_ids(*prompt)) to.prompts.emplace_back(prompt->get<std::vector<int32_t>>());
  if (!to.prompts.empty()) return;
  if (!prompt->is_array() || prompt->empty()) return fields.refuse("prompt", must, *prompt);
  if (prompt->size() > kMostPrompts) {
    return fields.refuse("prompt", fmt::format("at most {} prompts", kMostPrompts), *prompt);
  }
  for (const json& one : *prompt) {
    if (one.is_string()) {
      to.prompts.emplace_back(one.get<std::string>());
    } else if (are_ids(one)) {
      to.prompts.emplace_back(one.get<std::vector<int32_t>>());
    } else {
      return fields.refuse("prompt", must, *prompt);
    }
  }
}

}  // namespace

Refusal parse_completion(const json& body, const Defaults& defaults, CompletionRequest& to) {
  Refusal refusal;
  Fields fields(body, "", refusal);
  Generation& g = to.generation;
  read_generation(fields, defaults, g, refusal);
  g.text.max_tokens = 16;  // the protocol's default
  to.echo = fields.boolean("echo").value_or(false);
  if (const auto limit = fields.integer("max_tokens", to.echo ? 0 : 1, UINT32_MAX)) {
    g.text.max_tokens = static_cast<uint32_t>(*limit);
    to.generates = *limit > 0;
  }
  if (const auto top = fields.integer("logprobs", 0, kTopLogprobs)) {
    g.logprobs = g.text.sampling.logprob = true;
    g.text.sampling.top_logprobs = static_cast<uint32_t>(*top);
  }
  read_prompts(fields, to);
  if (const auto best = fields.integer("best_of", 1, kMostChoices); best && *best > g.choices && !refusal) {
    refusal = not_supported("'best_of' above 'n' is not supported; ask for 'n' choices instead", "best_of");
  }
  if (!fields.text("suffix").value_or("").empty() && !refusal) {
    refusal = not_supported("'suffix' is not supported: this model does not fill gaps", "suffix");
  }
  for (std::string& name : fields.unread()) g.ignored.push_back(std::move(name));
  return refusal;
}

}  // namespace switchyard::server
