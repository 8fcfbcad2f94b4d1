// SPDX-License-Identifier: Apache-2.0
// The answers of POST /v1/chat/completions.
#include <nlohmann/json.hpp>

#include "server/protocol/collected.h"

namespace switchyard::server {

using json = nlohmann::ordered_json;

namespace {

json timings(const std::vector<ChoiceEnd>& ends) {
  const Usage& u = ends.front().usage;
  const auto ms = [](uint64_t ns) { return static_cast<double>(ns) / 1e6; };
  const auto rate = [&](uint32_t tokens, uint64_t ns) { return ns == 0 ? 0.0 : tokens / (ms(ns) / 1e3); };
  const uint32_t computed = u.prompt_tokens - std::min(u.cached_tokens, u.prompt_tokens);
  const uint32_t drawn = u.generated_tokens == 0 ? 0 : u.generated_tokens - 1;  // the first one comes with the prompt
  return {{"cache_n", u.cached_tokens},
          {"prompt_n", computed},
          {"prompt_ms", ms(u.prompt_ns)},
          {"prompt_per_second", rate(computed, u.prompt_ns)},
          {"predicted_n", u.generated_tokens},
          {"predicted_ms", ms(u.draw_ns)},
          {"predicted_per_second", rate(drawn, u.draw_ns)}};
}

class ChatStream final : public Answer {
 public:
  explicit ChatStream(AnswerHead head) : head_(std::move(head)), ends_(head_.choices), logprobs_(head_.choices) {}

  std::string start() override {
    std::string out;
    for (uint32_t i = 0; i < head_.choices; ++i) {
      out += chunk(i, R"({"role":"assistant","content":""})", "null", "null");
    }
    return out;
  }

  // A chunk for each delta; the tokens' log-probabilities come with the first one after them.
  std::string add(const Part& part) override {
    std::string out;
    auto& waiting = logprobs_[part.choice];
    waiting.insert(waiting.end(), part.logprobs.begin(), part.logprobs.end());
    for (const Delta& delta : part.deltas) {
      const std::string text = delta_json(delta);
      if (!text.empty()) out += chunk(part.choice, text, take_logprobs(part.choice), "null");
    }
    return out;
  }

  std::string end(uint32_t choice, const ChoiceEnd& end) override {
    ends_[choice] = end;
    return chunk(choice, "{}", take_logprobs(choice), json_string(end.reason));
  }

  std::string finish() override {
    std::string out;
    if (head_.include_usage) {
      out = "data: " + opening() + R"("choices":[],"usage":)" + to_text(openai_usage(ends_, head_.prompt_tokens)) +
            R"(,"timings":)" + to_text(timings(ends_)) + "}\n\n";
    }
    return out + "data: [DONE]\n\n";
  }

  std::string fail(const ApiError& error) override { return "data: " + openai_error(error) + "\n\ndata: [DONE]\n\n"; }

 private:
  const std::string& opening() {
    if (opening_.empty()) {
      opening_ = R"({"id":)" + json_string(head_.id) + R"(,"object":"chat.completion.chunk","created":)" +
                 std::to_string(head_.created) + R"(,"model":)" + json_string(head_.model) +
                 R"(,"system_fingerprint":)" + json_string(head_.fingerprint) + ",";
    }
    return opening_;
  }

  std::string chunk(uint32_t choice, const std::string& delta, const std::string& logprobs, const std::string& reason) {
    std::string out = "data: ";
    out.reserve(opening().size() + delta.size() + logprobs.size() + 160);
    out += opening();
    out += R"("choices":[{"index":)";
    out += std::to_string(choice);
    out += R"(,"delta":)";
    out += delta;
    out += R"(,"logprobs":)";
    out += logprobs;
    out += R"(,"finish_reason":)";
    out += reason;
    out += head_.include_usage ? R"(}],"usage":null})" : "}]}";
    out += "\n\n";
    return out;
  }

  std::string take_logprobs(uint32_t choice) {
    if (!head_.logprobs || logprobs_[choice].empty()) return "null";
    return to_text(openai_logprobs(std::exchange(logprobs_[choice], {})));
  }

  std::string delta_json(const Delta& delta) {
    const std::string call = R"({"tool_calls":[{"index":)" + std::to_string(delta.call);
    switch (delta.kind) {
      case Delta::Kind::reasoning:
        return R"({"reasoning_content":)" + json_string(delta.text) + "}";
      case Delta::Kind::content:
        return R"({"content":)" + json_string(delta.text) + "}";
      case Delta::Kind::call:
        return call + R"(,"id":)" + json_string(head_.new_id("call_")) + R"(,"type":"function","function":{"name":)" +
               json_string(delta.text) + R"(,"arguments":""}}]})";
      case Delta::Kind::arguments:
        return call + R"(,"function":{"arguments":)" + json_string(delta.text) + "}}]}";
      case Delta::Kind::call_end:
        break;
    }
    return {};
  }

  AnswerHead head_;
  std::string opening_;
  std::vector<ChoiceEnd> ends_;
  std::vector<std::vector<TokenLogprob>> logprobs_;
};

class ChatWhole final : public Answer {
 public:
  explicit ChatWhole(AnswerHead head) : head_(std::move(head)), choices_(head_.choices) {}

  std::string start() override { return {}; }
  std::string add(const Part& part) override {
    Collected& choice = choices_[part.choice];
    for (const Delta& delta : part.deltas) choice.add(delta);
    choice.logprobs.insert(choice.logprobs.end(), part.logprobs.begin(), part.logprobs.end());
    return {};
  }
  std::string end(uint32_t choice, const ChoiceEnd& end) override {
    choices_[choice].end = end;
    return {};
  }

  std::string finish() override {
    json list = json::array();
    std::vector<ChoiceEnd> ends;
    for (uint32_t i = 0; i < choices_.size(); ++i) {
      const Collected& c = choices_[i];
      ends.push_back(c.end);
      list.push_back({{"index", i},
                      {"message", message(c)},
                      {"logprobs", head_.logprobs ? openai_logprobs(c.logprobs) : json(nullptr)},
                      {"finish_reason", c.end.reason}});
    }
    return to_text({{"id", head_.id},
                    {"object", "chat.completion"},
                    {"created", head_.created},
                    {"model", head_.model},
                    {"system_fingerprint", head_.fingerprint},
                    {"choices", list},
                    {"usage", openai_usage(ends, head_.prompt_tokens)},
                    {"timings", timings(ends)}});
  }

  std::string fail(const ApiError& error) override { return openai_error(error); }

 private:
  json message(const Collected& c) const {
    using Kind = Collected::Item::Kind;
    const std::string content = c.all(Kind::content);
    json m = {{"role", "assistant"}, {"content", content}};
    if (content.empty() && c.has(Kind::call)) m["content"] = nullptr;
    m["refusal"] = nullptr;
    if (c.has(Kind::reasoning)) m["reasoning_content"] = c.all(Kind::reasoning);
    for (const Collected::Item& item : c.items) {
      if (item.kind != Kind::call) continue;
      m["tool_calls"].push_back({{"id", head_.new_id("call_")},
                                 {"type", "function"},
                                 {"function", {{"name", item.name}, {"arguments", item.text}}}});
    }
    return m;
  }

  AnswerHead head_;
  std::vector<Collected> choices_;
};

}  // namespace

std::unique_ptr<Answer> chat_answer(AnswerHead head, bool stream) {
  if (stream) return std::make_unique<ChatStream>(std::move(head));
  return std::make_unique<ChatWhole>(std::move(head));
}

}  // namespace switchyard::server
