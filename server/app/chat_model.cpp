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
  model.calls_ = has("<tool_call>");
  model.channels_ = has("<|channel|>");
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
  const bool closed = end != std::string::npos && std::string_view(*text).substr(0, end + 1).ends_with("</think>");
  to.reasoning = to.form.reasoning ? Reasoning::open : thinks_ && !closed ? Reasoning::optional : Reasoning::none;
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

Refusal ChatModel::check_constraint(const ChatPrompt& prompt) const {
  if (channels_) {
    return not_supported(
        "this model answers in channels, which 'response_format' and the like cannot limit yet; leave "
        "them and a required 'tool_choice' out");
  }
  if (prompt.reasoning == Reasoning::none) return {};
  const auto end = tokenizer_->encode("</think>", Specials::marked);
  if (!end.ok()) return failed(end.status());
  if (end->size() != 1 || !tokenizer_->is_special((*end)[0])) return {};
  return wrong_field("chat_template_kwargs",
                     "this model ends its reasoning with a special token, which formats and required calls cannot "
                     "follow; turn the reasoning off: \"chat_template_kwargs\": {\"enable_thinking\": false}");
}

Refusal ChatModel::call_constraints(const ChatRequest& request, std::vector<std::string>& to) const {
  if (!functions_ && !calls_) {
    return not_supported(
        "strict tools, and a 'tool_choice' that requires a call, are not supported for this model's "
        "form of calls",
        "tool_choice");
  }
  const bool required = request.tool_choice == ToolChoice::required || request.generation.format;
  json spec = {{"tools", request.tools}, {"format", functions_ ? "xml" : "json"}};
  spec["choice"] = required ? json("required") : json("auto");
  if (!request.tool_name.empty()) spec["choice"] = {{"name", request.tool_name}};
  spec["parallel"] = request.parallel_tool_calls && request.tool_name.empty();
  for (json& tool : spec["tools"]) {
    json& function = tool["function"];
    // A function without parameters takes none.
    if (!function.contains("parameters") || function["parameters"].is_null())
      function["parameters"] = {{"type", "object"}, {"additionalProperties", false}};
    function.erase("strict");
  }
  to.push_back(spec.dump());
  bool looser = false;
  for (size_t i = 0; i < request.tools.size(); ++i) {
    const json& given = request.tools[i]["function"];
    if (is_strict(request.tools[i]) || !given.contains("parameters") || given["parameters"].is_null()) continue;
    spec["tools"][i]["function"]["strict"] = false;
    looser = true;
  }
  if (looser) to.push_back(spec.dump());
  return {};
}

bool is_strict(const json& tool) {
  const json& function = tool["function"];
  return function.contains("strict") && function["strict"] == true;
}

}  // namespace switchyard::server
