// SPDX-License-Identifier: Apache-2.0
// The answers of POST /v1/responses.
#include <nlohmann/json.hpp>

#include "server/protocol/collected.h"

namespace switchyard::server {

using json = nlohmann::ordered_json;

namespace {

using Item = Collected::Item;
using Kind = Collected::Item::Kind;

json text_part(const std::string& text) {
  return {{"type", "output_text"}, {"text", text}, {"annotations", json::array()}, {"logprobs", json::array()}};
}

json reasoning_part(const std::string& text) { return {{"type", "reasoning_text"}, {"text", text}}; }

json item_json(const Item& item, const char* status) {
  switch (item.kind) {
    case Kind::reasoning:
      return {{"id", item.id},
              {"type", "reasoning"},
              {"summary", json::array()},
              {"content", json::array({reasoning_part(item.text)})},
              {"status", status}};
    case Kind::content:
      return {{"id", item.id},
              {"type", "message"},
              {"status", status},
              {"role", "assistant"},
              {"content", json::array({text_part(item.text)})}};
    case Kind::call:
      break;
  }
  return {{"id", item.id},           {"type", "function_call"}, {"status", status},
          {"call_id", item.call_id}, {"name", item.name},       {"arguments", item.text}};
}

// Streams, and collects as it does so: the last event repeats the whole answer.
class ResponsesAnswer final : public Answer {
 public:
  ResponsesAnswer(AnswerHead head, bool stream, const json& request)
      : head_(std::move(head)), stream_(stream), request_(request) {}

  std::string start() override {
    std::string out = event("response.created", {{"response", response("in_progress")}});
    out += event("response.in_progress", {{"response", response("in_progress")}});
    return out;
  }

  std::string add(const Part& part) override {
    std::string out;
    for (const Delta& delta : part.deltas) {
      if (delta.kind == Delta::Kind::call_end) continue;
      const bool begins = answer_.begins(delta);
      if (begins) out += close("completed");
      Item& item = answer_.add(delta);
      if (begins) {
        open_ = true;
        out += opened(item);
      }
      if (delta.kind != Delta::Kind::call) out += delta_event(item, delta.text);
    }
    return out;
  }

  std::string end(uint32_t /*choice*/, const ChoiceEnd& end) override {
    answer_.end = end;
    return close(end.reason == "length" ? "incomplete" : "completed");
  }

  std::string finish() override {
    const bool whole = answer_.end.reason != "length";
    const json done = response(whole ? "completed" : "incomplete");
    if (!stream_) return to_text(done);
    return event(whole ? "response.completed" : "response.incomplete", {{"response", done}});
  }

  std::string fail(const ApiError& error) override {
    if (!stream_) return openai_error(error);
    json failed = response("failed");
    failed["error"] = {{"code", error.code.empty() ? error.type : error.code}, {"message", error.message}};
    return event("response.failed", {{"response", failed}});
  }

 private:
  std::string event(const char* name, json fields) {
    if (!stream_) return {};
    json data = {{"type", name}, {"sequence_number", sequence_++}};
    data.update(fields);
    return fmt::format("event: {}\ndata: {}\n\n", name, to_text(data));
  }
  size_t index() const { return answer_.items.size() - 1; }
  json place(const Item& item) const {
    json at = {{"item_id", item.id}, {"output_index", index()}};
    if (item.kind != Kind::call) at["content_index"] = 0;
    return at;
  }
  static json with(json object, const char* name, json value) {
    object[name] = std::move(value);
    return object;
  }
  static json part_of(const Item& item, const std::string& text) {
    return item.kind == Kind::content ? text_part(text) : reasoning_part(text);
  }

  std::string opened(Item& item) {
    item.id = head_.new_id(item.kind == Kind::content ? "msg_" : item.kind == Kind::reasoning ? "rs_" : "fc_");
    if (item.kind == Kind::call) item.call_id = head_.new_id("call_");
    json empty = item_json({item.kind, item.id, item.call_id, item.name, ""}, "in_progress");
    if (item.kind != Kind::call) empty["content"] = json::array();
    std::string out = event("response.output_item.added", {{"output_index", index()}, {"item", empty}});
    if (item.kind != Kind::call) {
      out += event("response.content_part.added", with(place(item), "part", part_of(item, "")));
    }
    return out;
  }

  std::string delta_event(const Item& item, const std::string& text) {
    json data = with(place(item), "delta", text);
    if (item.kind == Kind::content) {
      data["logprobs"] = json::array();
      return event("response.output_text.delta", data);
    }
    return event(
        item.kind == Kind::reasoning ? "response.reasoning_text.delta" : "response.function_call_arguments.delta",
        data);
  }

  std::string close(const char* status) {
    if (!std::exchange(open_, false)) return {};
    const Item& item = answer_.items.back();
    std::string out;
    if (item.kind == Kind::call) {
      json data = with(place(item), "name", item.name);
      out = event("response.function_call_arguments.done", with(data, "arguments", item.text));
    } else {
      json data = with(place(item), "text", item.text);
      if (item.kind == Kind::content) data["logprobs"] = json::array();
      out = event(item.kind == Kind::content ? "response.output_text.done" : "response.reasoning_text.done", data);
      out += event("response.content_part.done", with(place(item), "part", part_of(item, item.text)));
    }
    return out + event("response.output_item.done", {{"output_index", index()}, {"item", item_json(item, status)}});
  }

  json response(const std::string& status) const {
    const bool ended = status == "completed" || status == "incomplete";
    json output = json::array();
    for (size_t i = 0; i < answer_.items.size() && ended; ++i) {
      const bool cut = status == "incomplete" && i + 1 == answer_.items.size();
      output.push_back(item_json(answer_.items[i], cut ? "incomplete" : "completed"));
    }
    json r = {{"id", head_.id},
              {"object", "response"},
              {"created_at", head_.created},
              {"status", status},
              {"error", nullptr},
              {"incomplete_details", status == "incomplete" ? json{{"reason", "max_output_tokens"}} : json(nullptr)},
              {"model", head_.model},
              {"output", output}};
    r.update(request_);
    r["usage"] = ended ? usage() : json(nullptr);
    return r;
  }
  json usage() const {
    const Usage& u = answer_.end.usage;
    return {{"input_tokens", head_.prompt_tokens},
            {"input_tokens_details", {{"cached_tokens", u.cached_tokens}}},
            {"output_tokens", u.generated_tokens},
            {"output_tokens_details", {{"reasoning_tokens", answer_.end.reasoning_tokens}}},
            {"total_tokens", head_.prompt_tokens + u.generated_tokens}};
  }

  AnswerHead head_;
  bool stream_;
  json request_;  // fields that the response repeats
  Collected answer_;
  bool open_ = false;  // the last item
  uint32_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<Answer> responses_answer(AnswerHead head, bool stream, const json& request) {
  return std::make_unique<ResponsesAnswer>(std::move(head), stream, request);
}

}  // namespace switchyard::server
