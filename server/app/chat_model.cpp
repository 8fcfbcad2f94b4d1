// SPDX-License-Identifier: Apache-2.0
#include "server/app/chat_model.h"

#include <algorithm>

#include "server/protocol/messages.h"

namespace switchyard::server {

using json = nlohmann::ordered_json;

Result<ChatModel> ChatModel::create(const Tokenizer& tokenizer, const std::string& source) {
  ChatModel model(tokenizer);
  if (source.empty()) return model;
  SWY_LET(model.template_, ChatTemplate::parse(source));
  const auto has = [&](const char* text) { return source.find(text) != std::string::npos; };
  model.tools_ = has("tools");
  model.functions_ = has("<function=");
  model.thinks_ = has("</think>");
  return model;
}

Refusal ChatModel::prompt(const ChatRequest& request, ChatPrompt& to) const {
  if (!template_) {
    return not_supported("this model has no chat template, so it takes no conversations; use /v1/completions");
  }
  const bool tools = !request.tools.empty() && request.tool_choice != ToolChoice::none;
  if (tools && !tools_) {
    return wrong_field("tools", "this model's chat template has no place for tools; leave 'tools' out");
  }
  const auto quote = [this](std::string_view text) { return tokenizer_->quote_specials(text); };
  const json messages = with_strings(request.messages, quote);
  const json list = tools ? with_strings(request.tools, quote) : json();
  const auto text = template_->render(messages, true, list, request.template_arguments);
  if (!text.ok()) return wrong_field("messages", text.status().message());
  auto ids = tokenizer_->encode(*text, Specials::marked);
  if (!ids.ok()) return failed(ids.status());
  to.ids = std::move(*ids);
  to.checkpoints = checkpoints(to.ids);
  const size_t end = text->find_last_not_of(" \t\r\n");
  to.form.reasoning = end != std::string::npos && std::string_view(*text).substr(0, end + 1).ends_with("<think>");
  // A template that closed the reasoning, or left it out, may get it all the same.
  to.form.thinks = thinks_;
  to.form.tools = tools;
  if (tools) to.form.schemas = ToolSchemas(request.tools);
  return {};
}

// Turns begin with one special token. Later prompts share the first turn, of the system and the tools; and everything
// before the last turn of the user, since templates drop the reasoning of the turns after it once a new one comes.
std::vector<uint32_t> ChatModel::checkpoints(const std::vector<int32_t>& ids) const {
  std::vector<uint32_t> places;
  if (ids.empty() || !tokenizer_->is_special(ids[0])) return places;
  const auto opens = [&](size_t i) { return i != 0 && ids[i] == ids[0]; };
  const auto begins_with = [&](size_t i, std::string_view text) {
    const size_t n = std::min<size_t>(ids.size() - i, 16);
    return tokenizer_->decode(std::span(ids).subspan(i, n), true).starts_with(text);
  };
  size_t first = 0, last = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!opens(i)) continue;
    if (first == 0) first = i;
    if (begins_with(i, "user") && !begins_with(i, "user\n<tool_response>")) last = i;
  }
  if (first != 0) places.push_back(static_cast<uint32_t>(first));
  if (last > first) places.push_back(static_cast<uint32_t>(last));
  return places;
}

namespace {

std::string escaped_for_pattern(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || (c & 0x80) != 0;
    if (!plain) out += '\\';
    out += c;
  }
  return out;
}

std::string one_of(const std::vector<std::string>& patterns) {
  std::string out = "(?:";
  for (size_t i = 0; i < patterns.size(); ++i) out += (i == 0 ? "" : "|") + patterns[i];
  return out + ")";
}

// Calls of one function with any of its parameters, in any order.
std::string function_pattern(const json& function) {
  std::vector<std::string> keys;
  if (function.contains("parameters") && function["parameters"].contains("properties") &&
      function["parameters"]["properties"].is_object()) {
    for (const auto& [key, schema] : function["parameters"]["properties"].items()) {
      keys.push_back(escaped_for_pattern(key));
    }
  }
  // A value's lines do not begin with a tag.
  const std::string value = R"((?:[^\n]|\n[^<\n]|\n\n)*)";
  const std::string parameters =
      keys.empty() ? "" : "(?:<parameter=" + one_of(keys) + R"(>\n)" + value + R"(\n</parameter>\n)*)";
  return escaped_for_pattern(function["name"].get<std::string>()) + R"(>\n)" + parameters;
}

}  // namespace

Refusal ChatModel::call_pattern(const ChatRequest& request, bool reasoning, std::string& to) const {
  if (!functions_) {
    return not_supported("a 'tool_choice' that requires a call is not supported for this model's form of calls",
                         "tool_choice");
  }
  std::vector<std::string> functions;
  for (const json& tool : request.tools) {
    const json& function = tool["function"];
    if (request.tool_name.empty() || function["name"] == request.tool_name)
      functions.push_back(function_pattern(function));
  }
  const std::string call = R"(<tool_call>\n<function=)" + one_of(functions) + R"(</function>\n</tool_call>)";
  const bool one = !request.parallel_tool_calls || !request.tool_name.empty();
  to = (reasoning ? R"((?:[^<]|<[^/])*</think>\n\n)" : "") + call + (one ? "" : R"((?:\n)" + call + ")*");
  return {};
}

}  // namespace switchyard::server
