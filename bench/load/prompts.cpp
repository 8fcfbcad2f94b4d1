// SPDX-License-Identifier: Apache-2.0
#include "bench/load/prompts.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/lengths.h"
#include "core/base/json.h"

namespace switchyard::bench {
namespace {

// One token each, after a blank, in most vocabularies.
constexpr std::array kWords = {
    "the",  "of",     "and",  "to",   "in",    "that",  "was",    "his",  "he",  "it",    "with",   "is",    "for",
    "as",   "had",    "you",  "not",  "be",    "on",    "at",     "by",   "her", "which", "have",   "or",    "from",
    "this", "him",    "but",  "all",  "she",   "they",  "were",   "my",   "are", "me",    "one",    "their", "so",
    "an",   "said",   "them", "we",   "who",   "would", "been",   "will", "no",  "when",  "there",  "if",    "more",
    "out",  "up",     "into", "do",   "any",   "your",  "what",   "has",  "man", "could", "other",  "than",  "our",
    "some", "very",   "time", "upon", "about", "may",   "its",    "only", "now", "like",  "little", "then",  "can",
    "made", "should", "did",  "us",   "such",  "great", "before", "must", "two", "these", "see",    "know",  "over"};

// Streams of numbers of one seed that have nothing to do with each other.
uint64_t seed_of(uint64_t seed, uint64_t stream) {
  return seed * 0x9e3779b97f4a7c15ull + stream * 0xbf58476d1ce4e5b9ull;
}

constexpr uint64_t kSharedStream = 0, kFirstStream = 1;

}  // namespace

std::string words(std::mt19937_64& random, uint32_t count) {
  std::string text;
  for (uint32_t i = 0; i < count; ++i) {
    text += i == 0 ? "" : " ";
    text += kWords[random() % kWords.size()];
  }
  return text;
}

TokenRate TokenRate::of(uint32_t few, uint32_t many) {
  if (few == 0 || many <= few) return {};
  const double per_word = static_cast<double>(many - few) / (kMany - kFew);
  return {std::max(0.0, few - per_word * kFew), per_word};
}

uint32_t TokenRate::words(uint32_t tokens) const {
  return static_cast<uint32_t>(std::max(1.0, std::round((tokens - fixed) / per_word)));
}

std::string request_body(const Load& load, const std::vector<std::pair<std::string, std::string>>& said,
                         uint32_t tokens) {
  nlohmann::ordered_json body = {{"model", load.model}};
  if (load.chat) {
    auto& messages = body["messages"] = nlohmann::ordered_json::array();
    for (const auto& [role, text] : said) messages.push_back({{"role", role}, {"content", text}});
  } else {
    std::string prompt;
    for (const auto& [role, text] : said) prompt += prompt.empty() ? text : " " + text;
    body["prompt"] = prompt;
  }
  body["max_tokens"] = tokens;
  body["temperature"] = load.temperature;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  if (!load.ends_early) body["ignore_eos"] = true;
  if (const auto extra = read_ordered_json(load.extra, "extra"); extra.ok() && extra->is_object()) body.update(*extra);
  return body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Conversation::Conversation(const Load& load, const TokenRate& rate, uint32_t index)
    : load_(load), rate_(rate), random_(seed_of(load.seed, kFirstStream + index)) {
  if (load.shared == 0) return;
  std::mt19937_64 shared(seed_of(load.seed, kSharedStream));
  opening_ = words(shared, rate.words(load.shared));
  if (load.chat) said_.emplace_back("system", opening_);
}

std::string Conversation::next_body() {
  const uint32_t tokens = log_uniform(random_, load_.prompt.least, load_.prompt.most);
  const uint32_t answer = log_uniform(random_, load_.answer.least, load_.answer.most);
  std::string text = words(random_, rate_.words(tokens));
  if (!load_.chat && said_.empty() && !opening_.empty()) text = opening_ + " " + text;
  said_.emplace_back("user", std::move(text));
  return request_body(load_, said_, answer);
}

void Conversation::answered(const std::string& text) { said_.emplace_back("assistant", text); }

}  // namespace switchyard::bench
