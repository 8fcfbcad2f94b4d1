// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/messages.h"
#include "server/protocol/requests.h"

namespace switchyard::server {

using json = nlohmann::ordered_json;

namespace {

// Items of `input` as messages: an answer's reasoning, text and calls, which are items of their own, become one
// message.
class ResponsesItems {
 public:
  explicit ResponsesItems(Refusal& refusal) : refusal_(refusal) {}

  void add(const json& item, const std::string& path) {
    Fields fields(item, path, refusal_);
    const std::string type = fields.text("type").value_or("message");
    if (type == "message") {
      add_message(fields);
    } else if (type == "reasoning") {
      add_reasoning(item);
    } else if (type == "function_call") {
      const json* arguments = fields.find("arguments");
      answer()["tool_calls"].push_back({{"id", fields.text("call_id").value_or("")},
                                        {"type", "function"},
                                        {"function",
                                         {{"name", fields.text("name").value_or("")},
                                          {"arguments", arguments == nullptr ? json("") : *arguments}}}});
    } else if (type == "function_call_output") {
      const json* output = fields.find("output");
      out.push_back({{"role", "tool"},
                     {"tool_call_id", fields.text("call_id").value_or("")},
                     {"content", output == nullptr ? json("") : *output}});
    } else {
      fields.refuse("type", "message, reasoning, function_call or function_call_output", type);
    }
  }

  json out = json::array();

 private:
  void add_message(Fields& fields) {
    const std::string role = fields.text("role").value_or("");
    const json* content = fields.find("content");
    const json text = content == nullptr ? json("") : *content;
    if (role != "assistant") {
      out.push_back({{"role", role}, {"content", text}});
      return;
    }
    json& last = answer();
    last["content"] = last["content"].get<std::string>() + content_text(text, fields.path_of("content"), refusal_);
  }
  void add_reasoning(const json& item) {
    std::string text;
    for (const json& part : item.contains("content") && item["content"].is_array() ? item["content"] : json::array()) {
      if (part.is_object() && part.contains("text") && part["text"].is_string())
        text += part["text"].get<std::string>();
    }
    if (!text.empty()) answer()["reasoning_content"] = text;
  }
  json& answer() {
    if (out.empty() || out.back()["role"] != "assistant") out.push_back({{"role", "assistant"}, {"content", ""}});
    return out.back();
  }

  Refusal& refusal_;
};

void read_input(Fields& fields, ChatRequest& to, Refusal& refusal) {
  ResponsesItems converter(refusal);
  if (const auto instructions = fields.text("instructions")) {
    converter.out.push_back({{"role", "system"}, {"content", *instructions}});
  }
  const json* input = fields.find("input");
  if (input != nullptr && input->is_string()) {
    converter.out.push_back({{"role", "user"}, {"content", *input}});
  } else if (input != nullptr && input->is_array() && !input->empty()) {
    for (size_t i = 0; i < input->size() && !refusal; ++i) converter.add((*input)[i], fmt::format("input[{}]", i));
  } else {
    fields.refuse("input", "a string or an array of items", input == nullptr ? json() : *input);
  }
  if (!refusal) to.messages = normalised(converter.out, refusal);
}

void read_response_tools(Fields& fields, ChatRequest& to, Refusal& refusal) {
  const json* tools = fields.list("tools");
  if (tools == nullptr) return;
  to.tools = json::array();
  for (size_t i = 0; i < tools->size() && !refusal; ++i) {
    Fields tool((*tools)[i], fmt::format("tools[{}]", i), refusal);
    if (tool.text("type").value_or("") != "function") {  // tools that OpenAI's servers run
      to.generation.ignored.push_back(fmt::format("tools[{}]", i));
      continue;
    }
    json function = {{"name", tool.text("name").value_or("")}};
    for (const char* key : {"description", "parameters", "strict"}) {
      if (const json* value = tool.find(key)) function[key] = *value;
    }
    to.tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  check_tools(to.tools, refusal);
  if (to.tools.empty()) to.tools = nullptr;
}

void read_response_choice(Fields& fields, ChatRequest& to, Refusal& refusal) {
  const json* choice = fields.find("tool_choice");
  if (choice == nullptr || *choice == "auto") return;
  if (*choice == "none") {
    to.tool_choice = ToolChoice::none;
  } else if (*choice == "required") {
    to.tool_choice = ToolChoice::required;
  } else if (choice->is_object() && choice->contains("name") && (*choice)["name"].is_string()) {
    to.tool_choice = ToolChoice::required;
    to.tool_name = (*choice)["name"];
  } else {
    fields.refuse("tool_choice", "none, auto, required or {\"type\": \"function\", \"name\": …}", *choice);
  }
  check_choice(to, refusal);
}

void read_format(Fields& fields, ChatRequest& to, Refusal& refusal) {
  const json* text = fields.object("text");
  if (text == nullptr) return;
  Fields inner(*text, "text", refusal);
  if (const json* format = inner.object("format")) read_format_type(*format, "text.format", to.generation, refusal);
}

void read_generation_of(Fields& fields, const Defaults& defaults, Generation& g) {
  g.text = defaults.text;
  g.model = fields.text("model").value_or("");
  g.stream = fields.boolean("stream").value_or(false);
  SamplingParams& s = g.text.sampling;
  if (const auto v = fields.number("temperature", 0, 100)) s.temperature = static_cast<float>(*v);
  if (const auto v = fields.number("top_p", 0, 1)) s.top_p = std::max(static_cast<float>(*v), 1e-6F);
  if (const auto v = fields.integer("top_k", -1, INT32_MAX)) s.top_k = static_cast<int32_t>(std::max<int64_t>(*v, 0));
  if (const auto v = fields.integer("seed", INT64_MIN, INT64_MAX)) s.seed = static_cast<uint64_t>(*v);
  if (const auto v = fields.integer("max_output_tokens", 1, UINT32_MAX)) g.text.max_tokens = static_cast<uint32_t>(*v);
  if (const auto v = fields.text("allow_regex")) g.text.allow_regex = *v;
}

// What the response repeats of the request.
json repeated_fields(const json& body, const ChatRequest& r) {
  const auto given = [&](const char* name, const json& otherwise) {
    return body.is_object() && body.contains(name) && !body[name].is_null() ? body[name] : otherwise;
  };
  return {{"instructions", given("instructions", nullptr)},
          {"max_output_tokens", given("max_output_tokens", nullptr)},
          {"parallel_tool_calls", r.parallel_tool_calls},
          {"previous_response_id", nullptr},
          {"reasoning", given("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
          {"store", false},
          {"temperature", given("temperature", r.generation.text.sampling.temperature)},
          {"text", given("text", {{"format", {{"type", "text"}}}})},
          {"tool_choice", given("tool_choice", "auto")},
          {"tools", given("tools", json::array())},
          {"top_p", given("top_p", r.generation.text.sampling.top_p)},
          {"truncation", "disabled"},
          {"metadata", given("metadata", json::object())}};
}

}  // namespace

Refusal parse_responses(const json& body, const Defaults& defaults, ChatRequest& to, json& repeated) {
  Refusal refusal;
  Fields fields(body, "", refusal);
  read_generation_of(fields, defaults, to.generation);
  read_input(fields, to, refusal);
  read_response_tools(fields, to, refusal);
  read_response_choice(fields, to, refusal);
  to.parallel_tool_calls = fields.boolean("parallel_tool_calls").value_or(true);
  if (const json* reasoning = fields.object("reasoning")) {
    Fields inner(*reasoning, "reasoning", refusal);
    read_effort(inner, "effort", to);
  }
  read_format(fields, to, refusal);
  read_structured(fields, to.generation, refusal);
  for (const char* name : {"previous_response_id", "conversation"}) {
    if (fields.find(name) != nullptr && !refusal) {
      refusal = not_supported(fmt::format("'{}' is not supported: this server keeps no responses; send the whole "
                                          "conversation in 'input'",
                                          name),
                              name);
    }
  }
  if (fields.boolean("background").value_or(false) && !refusal) {
    refusal = not_supported("'background' is not supported; use 'stream'", "background");
  }
  if (const json* arguments = fields.object("chat_template_kwargs")) {
    for (const auto& [name, value] : arguments->items()) to.template_arguments[name] = value;
  }
  fields.pass_over({"user", "metadata", "store", "service_tier", "include", "truncation", "safety_identifier",
                    "prompt_cache_key", "stream_options", "top_logprobs"});
  for (std::string& name : fields.unread()) to.generation.ignored.push_back(std::move(name));
  repeated = repeated_fields(body, to);
  return refusal;
}

}  // namespace switchyard::server
