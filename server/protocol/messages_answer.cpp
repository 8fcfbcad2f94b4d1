// SPDX-License-Identifier: Apache-2.0
// The answers of POST /v1/messages, Anthropic's form.
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "server/protocol/collected.h"

namespace switchyard::server {

using json = nlohmann::ordered_json;

namespace {

std::string event(const char* name, const json& data) {
  return fmt::format("event: {}\ndata: {}\n\n", name, to_text(data));
}

const char* stop_reason(const ChoiceEnd& end) {
  if (end.reason == "tool_calls") return "tool_use";
  if (end.reason == "length") return "max_tokens";
  return end.stopped == "stop" ? "stop_sequence" : "end_turn";
}

json usage_json(const ChoiceEnd& end, uint32_t prompt_tokens) {
  return {{"input_tokens", prompt_tokens - std::min(end.usage.cached_tokens, prompt_tokens)},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", end.usage.cached_tokens},
          {"output_tokens", end.usage.generated_tokens}};
}

class MessagesStream final : public Answer {
 public:
  explicit MessagesStream(AnswerHead head) : head_(std::move(head)) {}

  std::string start() override {
    ChoiceEnd none;
    return event("message_start", {{"type", "message_start"},
                                   {"message",
                                    {{"id", head_.id},
                                     {"type", "message"},
                                     {"role", "assistant"},
                                     {"model", head_.model},
                                     {"content", json::array()},
                                     {"stop_reason", nullptr},
                                     {"stop_sequence", nullptr},
                                     {"usage", usage_json(none, head_.prompt_tokens)}}}}) +
           ping(Protocol::messages);
  }

  std::string add(const Part& part) override {
    std::string out;
    for (const Delta& delta : part.deltas) {
      if (delta.kind == Delta::Kind::call_end) continue;
      if (open_.begins(delta)) {
        out += close();
        out += begin(delta);
      }
      open_.items = {{.kind = kind_of(delta), .id = {}, .call_id = {}, .name = {}, .text = {}}};
      if (delta.kind != Delta::Kind::call) out += delta_event(delta);
    }
    return out;
  }

  std::string end(uint32_t /*choice*/, const ChoiceEnd& end) override {
    end_ = end;
    return close();
  }

  std::string finish() override {
    return event("message_delta", {{"type", "message_delta"},
                                   {"delta", {{"stop_reason", stop_reason(end_)}, {"stop_sequence", nullptr}}},
                                   {"usage", usage_json(end_, head_.prompt_tokens)}}) +
           event("message_stop", {{"type", "message_stop"}});
  }

  std::string fail(const ApiError& error) override { return "event: error\ndata: " + anthropic_error(error) + "\n\n"; }

 private:
  static Collected::Item::Kind kind_of(const Delta& delta) {
    Collected c;
    return c.add(delta).kind;
  }
  std::string close() {
    if (open_.items.empty()) return {};
    open_.items.clear();
    std::string out;
    if (reasoning_) {  // clients expect a signature before a thinking block ends
      out = delta_of({{"type", "signature_delta"}, {"signature", ""}});
      reasoning_ = false;
    }
    return out + event("content_block_stop", {{"type", "content_block_stop"}, {"index", index_++}});
  }
  std::string begin(const Delta& delta) {
    json block = {{"type", "text"}, {"text", ""}};
    if (delta.kind == Delta::Kind::reasoning) block = {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    if (delta.kind == Delta::Kind::call) {
      block = {{"type", "tool_use"}, {"id", head_.new_id("toolu_")}, {"name", delta.text}, {"input", json::object()}};
    }
    reasoning_ = delta.kind == Delta::Kind::reasoning;
    return event("content_block_start", {{"type", "content_block_start"}, {"index", index_}, {"content_block", block}});
  }
  std::string delta_of(const json& delta) const {
    return event("content_block_delta", {{"type", "content_block_delta"}, {"index", index_}, {"delta", delta}});
  }
  std::string delta_event(const Delta& delta) const {
    if (delta.kind == Delta::Kind::reasoning) return delta_of({{"type", "thinking_delta"}, {"thinking", delta.text}});
    if (delta.kind == Delta::Kind::content) return delta_of({{"type", "text_delta"}, {"text", delta.text}});
    return delta_of({{"type", "input_json_delta"}, {"partial_json", delta.text}});
  }

  AnswerHead head_;
  Collected open_;  // its item is the open block
  bool reasoning_ = false;
  uint32_t index_ = 0;
  ChoiceEnd end_;
};

class MessagesWhole final : public Answer {
 public:
  explicit MessagesWhole(AnswerHead head) : head_(std::move(head)) {}

  std::string start() override { return {}; }
  std::string add(const Part& part) override {
    for (const Delta& delta : part.deltas) answer_.add(delta);
    return {};
  }
  std::string end(uint32_t /*choice*/, const ChoiceEnd& end) override {
    answer_.end = end;
    return {};
  }
  std::string finish() override {
    json content = json::array();
    for (const Collected::Item& item : answer_.items) content.push_back(block(item));
    return to_text({{"id", head_.id},
                    {"type", "message"},
                    {"role", "assistant"},
                    {"model", head_.model},
                    {"content", content},
                    {"stop_reason", stop_reason(answer_.end)},
                    {"stop_sequence", nullptr},
                    {"usage", usage_json(answer_.end, head_.prompt_tokens)}});
  }
  std::string fail(const ApiError& error) override { return anthropic_error(error); }

 private:
  json block(const Collected::Item& item) const {
    using Kind = Collected::Item::Kind;
    if (item.kind == Kind::content) return {{"type", "text"}, {"text", item.text}};
    if (item.kind == Kind::reasoning) return {{"type", "thinking"}, {"thinking", item.text}, {"signature", ""}};
    auto input = read_ordered_json(item.text, "arguments");
    return {{"type", "tool_use"},
            {"id", head_.new_id("toolu_")},
            {"name", item.name},
            {"input", input.ok() && input->is_object() ? std::move(*input) : json::object()}};
  }

  AnswerHead head_;
  Collected answer_;
};

}  // namespace

std::unique_ptr<Answer> messages_answer(AnswerHead head, bool stream) {
  if (stream) return std::make_unique<MessagesStream>(std::move(head));
  return std::make_unique<MessagesWhole>(std::move(head));
}

std::string ping(Protocol protocol) {
  return protocol == Protocol::messages ? event("ping", {{"type", "ping"}}) : ": ping\n\n";
}

}  // namespace switchyard::server
