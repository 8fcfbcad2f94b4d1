// SPDX-License-Identifier: Apache-2.0
// The answers of POST /v1/completions.
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "server/protocol/collected.h"

namespace switchyard::server {

using json = nlohmann::ordered_json;

namespace {

// Characters of a text, as clients count them.
size_t characters(std::string_view text) {
  size_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return n;
}

// Of the tokens of `first` and then of `second`. `offset`: characters of the text before the first token; it is moved
// on.
json completion_logprobs(std::span<const TokenLogprob> first, std::span<const TokenLogprob> second, size_t& offset) {
  json texts = json::array(), values = json::array(), tops = json::array(), offsets = json::array();
  for (const auto tokens : {first, second}) {
    for (const TokenLogprob& token : tokens) {
      texts.push_back(token.bytes);
      const bool none = std::isnan(token.logprob);
      values.push_back(none ? json(nullptr) : json(token.logprob));
      json top = none ? json(nullptr) : json::object();
      for (const auto& [bytes, logprob] : token.top) top[bytes] = logprob;
      tops.push_back(std::move(top));
      offsets.push_back(offset);
      offset += characters(token.bytes);
    }
  }
  json out;
  out["tokens"] = std::move(texts);
  out["token_logprobs"] = std::move(values);
  out["top_logprobs"] = std::move(tops);
  out["text_offset"] = std::move(offsets);
  return out;
}

std::string text_of(const Part& part) {
  std::string text;
  for (const Delta& delta : part.deltas) text += delta.text;
  return text;
}

class CompletionAnswer final : public Answer {
 public:
  CompletionAnswer(AnswerHead head, bool stream, std::vector<std::shared_ptr<const Echo>> echo)
      : head_(std::move(head)), stream_(stream), choices_(head_.choices) {
    for (size_t i = 0; i < echo.size(); ++i) {
      if (echo[i]->logprobs.empty()) choices_[i].offset = characters(echo[i]->text);
      choices_[i].echo = std::move(echo[i]);
    }
  }

  std::string start() override {
    std::string out;
    for (uint32_t i = 0; stream_ && i < choices_.size(); ++i) {
      if (choices_[i].echo == nullptr) continue;
      const std::shared_ptr<const Echo> echo = choices_[i].echo;
      out += event(choice_json(i, echo->text, take_logprobs(choices_[i]), nullptr));
    }
    return out;
  }

  std::string add(const Part& part) override {
    Choice& c = choices_[part.choice];
    c.logprobs.insert(c.logprobs.end(), part.logprobs.begin(), part.logprobs.end());
    const std::string text = text_of(part);
    if (!stream_) {
      c.text += text;
      return {};
    }
    return text.empty() ? "" : event(choice_json(part.choice, text, take_logprobs(c), nullptr));
  }

  std::string end(uint32_t choice, const ChoiceEnd& end) override {
    Choice& c = choices_[choice];
    c.end = end;
    return stream_ ? event(choice_json(choice, "", take_logprobs(c), end.reason)) : "";
  }

  std::string finish() override {
    std::vector<ChoiceEnd> ends;
    for (const Choice& c : choices_) ends.push_back(c.end);
    const json usage = openai_usage(ends, head_.prompt_tokens);
    if (stream_) {
      std::string out;
      if (head_.include_usage) out = "data: " + to_text(body(json::array(), usage)) + "\n\n";
      return out + "data: [DONE]\n\n";
    }
    json list = json::array();
    for (uint32_t i = 0; i < choices_.size(); ++i) {
      const std::shared_ptr<const Echo> echo = choices_[i].echo;
      const std::string text = echo != nullptr ? echo->text + choices_[i].text : std::move(choices_[i].text);
      list.push_back(choice_json(i, text, take_logprobs(choices_[i]), choices_[i].end.reason));
    }
    return to_text(body(std::move(list), usage));
  }

  std::string fail(const ApiError& error) override {
    const std::string text = openai_error(error);
    return stream_ ? "data: " + text + "\n\ndata: [DONE]\n\n" : text;
  }

 private:
  struct Choice {
    std::shared_ptr<const Echo> echo = {};  // that is yet to be given
    std::string text;
    std::vector<TokenLogprob> logprobs;
    size_t offset = 0;
    ChoiceEnd end;
  };

  json take_logprobs(Choice& c) const {
    const std::shared_ptr<const Echo> echo = std::exchange(c.echo, {});
    const std::span<const TokenLogprob> first = echo != nullptr ? std::span(echo->logprobs) : std::span<TokenLogprob>();
    if (!head_.logprobs || (stream_ && first.empty() && c.logprobs.empty())) return nullptr;
    return completion_logprobs(first, std::exchange(c.logprobs, {}), c.offset);
  }
  // Log-probabilities may be many: they are moved, not copied.
  static json choice_json(uint32_t index, const std::string& text, json logprobs, const json& reason) {
    json out = {{"index", index}, {"text", text}};
    out["logprobs"] = std::move(logprobs);
    out["finish_reason"] = reason;
    return out;
  }
  json body(json choices, const json& usage) const {
    json out = {{"id", head_.id},
                {"object", "text_completion"},
                {"created", head_.created},
                {"model", head_.model},
                {"system_fingerprint", head_.fingerprint}};
    out["choices"] = std::move(choices);
    if (!stream_ || head_.include_usage) out["usage"] = usage;
    return out;
  }
  std::string event(json choice) const {
    json choices = json::array();
    choices.push_back(std::move(choice));
    return "data: " + to_text(body(std::move(choices), nullptr)) + "\n\n";
  }

  AnswerHead head_;
  bool stream_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<Answer> completion_answer(AnswerHead head, bool stream, std::vector<std::shared_ptr<const Echo>> echo) {
  return std::make_unique<CompletionAnswer>(std::move(head), stream, std::move(echo));
}

}  // namespace switchyard::server
