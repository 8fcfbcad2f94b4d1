// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/collected.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace switchyard::server {

using json = nlohmann::ordered_json;

std::string to_text(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

namespace {

Collected::Item::Kind kind_of(const Delta& delta) {
  if (delta.kind == Delta::Kind::reasoning) return Collected::Item::Kind::reasoning;
  if (delta.kind == Delta::Kind::content) return Collected::Item::Kind::content;
  return Collected::Item::Kind::call;
}

}  // namespace

bool Collected::begins(const Delta& delta) const {
  return items.empty() || delta.kind == Delta::Kind::call || items.back().kind != kind_of(delta);
}

Collected::Item& Collected::add(const Delta& delta) {
  if (begins(delta)) items.push_back({.kind = kind_of(delta), .id = {}, .call_id = {}, .name = {}, .text = {}});
  Item& item = items.back();
  (delta.kind == Delta::Kind::call ? item.name : item.text) += delta.text;
  return item;
}

std::string Collected::all(Item::Kind kind) const {
  std::string text;
  for (const Item& item : items) {
    if (item.kind == kind) text += item.text;
  }
  return text;
}

bool Collected::has(Item::Kind kind) const {
  return std::any_of(items.begin(), items.end(), [kind](const Item& item) { return item.kind == kind; });
}

json openai_usage(const std::vector<ChoiceEnd>& ends, uint32_t prompt_tokens) {
  uint64_t generated = 0, reasoning = 0;
  uint32_t cached = 0;
  for (const ChoiceEnd& end : ends) {
    generated += end.usage.generated_tokens;
    reasoning += end.reasoning_tokens;
    cached = std::max(cached, end.usage.cached_tokens);
  }
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", generated},
          {"total_tokens", prompt_tokens + generated},
          {"prompt_tokens_details", {{"cached_tokens", cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", reasoning}}}};
}

namespace {

json token_json(const std::string& bytes, float logprob) {
  json numbers = json::array();
  for (const char c : bytes) numbers.push_back(static_cast<unsigned char>(c));
  return {{"token", bytes}, {"logprob", logprob}, {"bytes", numbers}};
}

}  // namespace

json openai_logprobs(const std::vector<TokenLogprob>& tokens) {
  json content = json::array();
  for (const TokenLogprob& token : tokens) {
    json one = token_json(token.bytes, token.logprob);
    json top = json::array();
    for (const auto& [bytes, logprob] : token.top) top.push_back(token_json(bytes, logprob));
    one["top_logprobs"] = top;
    content.push_back(one);
  }
  return {{"content", content}, {"refusal", nullptr}};
}

}  // namespace switchyard::server
