// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/chat_request.h"

#include <algorithm>

#include "server/protocol/messages.h"

namespace switchyard::server {

using json = nlohmann::ordered_json;

void read_effort(Fields& fields, std::string_view name, ChatRequest& to) {
  const auto effort = fields.text(name);
  if (!effort) return;
  to.template_arguments["reasoning_effort"] = *effort;
  if (*effort == "none") to.template_arguments["enable_thinking"] = false;
}

void check_tools(const json& tools, Refusal& refusal) {
  for (size_t i = 0; i < tools.size() && !refusal; ++i) {
    Fields tool(tools[i], fmt::format("tools[{}]", i), refusal);
    const json* function = tool.object("function");
    if (function == nullptr) {
      tool.refuse("function", "an object; tools are functions here", nullptr);
      return;
    }
    Fields inner(*function, tool.path_of("function"), refusal);
    if (inner.text("name").value_or("").empty()) inner.refuse("name", "the function's name", nullptr);
    inner.object("parameters");
    inner.text("description");
  }
}

void check_choice(const ChatRequest& r, Refusal& refusal) {
  if (refusal || r.tool_choice != ToolChoice::required) return;
  const auto named = [&](const json& tool) { return tool["function"]["name"] == r.tool_name; };
  const bool known = !r.tools.empty() && (r.tool_name.empty() || std::any_of(r.tools.begin(), r.tools.end(), named));
  if (!known) {
    refusal = wrong_field("tool_choice",
                          r.tool_name.empty()
                              ? "'tool_choice' asks for a call, and 'tools' has no function"
                              : fmt::format("'tool_choice' names the function '{}', which 'tools' lacks", r.tool_name));
  }
}

namespace {

void read_chat_choice(Fields& fields, ChatRequest& to, Refusal& refusal) {
  const json* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  if (*choice == "none") {
    to.tool_choice = ToolChoice::none;
  } else if (*choice == "required") {
    to.tool_choice = ToolChoice::required;
  } else if (choice->is_object() && choice->contains("function") && (*choice)["function"].is_object()) {
    Fields inner((*choice)["function"], "tool_choice.function", refusal);
    to.tool_choice = ToolChoice::required;
    to.tool_name = inner.text("name").value_or("");
    if (to.tool_name.empty()) inner.refuse("name", "the function's name", nullptr);
  } else if (*choice != "auto") {
    fields.refuse("tool_choice", "none, auto, required or {\"type\": \"function\", \"function\": {\"name\": …}}",
                  *choice);
  }
}

void read_logprobs(Fields& fields, Generation& to) {
  to.logprobs = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, kTopLogprobs);
  to.text.sampling.logprob = to.logprobs;
  if (top && to.logprobs) to.text.sampling.top_logprobs = static_cast<uint32_t>(*top);
  if (top && *top > 0 && !to.logprobs) fields.refuse("logprobs", "true where 'top_logprobs' is given", false);
}

// Of the two names, the newer one counts.
void read_limit(Fields& fields, Generation& to) {
  const auto old = fields.integer("max_tokens", 1, UINT32_MAX);
  const auto limit = fields.integer("max_completion_tokens", 1, UINT32_MAX);
  if (limit || old) to.text.max_tokens = static_cast<uint32_t>(limit ? *limit : *old);
}

void read_template_arguments(Fields& fields, ChatRequest& to) {
  read_effort(fields, "reasoning_effort", to);
  if (const json* arguments = fields.object("chat_template_kwargs")) {
    for (const auto& [name, value] : arguments->items()) to.template_arguments[name] = value;
  }
}

}  // namespace

Refusal parse_chat(const json& body, const Defaults& defaults, ChatRequest& to) {
  Refusal refusal;
  Fields fields(body, "", refusal);
  read_generation(fields, defaults, to.generation, refusal);
  read_limit(fields, to.generation);
  read_logprobs(fields, to.generation);
  if (const json* messages = fields.list("messages")) {
    if (messages->empty()) fields.refuse("messages", "an array with at least one message", *messages);
    to.messages = normalised(*messages, refusal);
  } else {
    fields.refuse("messages", "an array of messages", nullptr);
  }
  if (const json* tools = fields.list("tools"); tools != nullptr && !tools->empty()) {
    check_tools(*tools, refusal);
    to.tools = *tools;
  }
  read_chat_choice(fields, to, refusal);
  check_choice(to, refusal);
  to.parallel_tool_calls = fields.boolean("parallel_tool_calls").value_or(true);
  read_template_arguments(fields, to);
  if (const json* format = fields.object("response_format")) {
    read_format_type(*format, "response_format", to.generation, refusal);
  }
  for (std::string& name : fields.unread()) to.generation.ignored.push_back(std::move(name));
  return refusal;
}

}  // namespace switchyard::server
