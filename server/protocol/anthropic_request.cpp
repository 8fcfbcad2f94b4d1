// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/messages.h"
#include "server/protocol/requests.h"

namespace switchyard::server {

using json = nlohmann::ordered_json;

namespace {

// One message in Anthropic's form becomes one or more in that of chat completions: its tool results are messages of
// their own there.
class AnthropicMessages {
 public:
  explicit AnthropicMessages(Refusal& refusal) : refusal_(refusal) {}

  void add(const json& message, const std::string& path) {
    Fields fields(message, path, refusal_);
    const std::string role = fields.text("role").value_or("");
    if (role != "user" && role != "assistant" && role != "system") {
      const json* given = fields.find("role");
      return fields.refuse("role", "user or assistant", given == nullptr ? json() : *given);
    }
    const json* content = fields.find("content");
    if (content == nullptr || !content->is_array()) {
      out.push_back({{"role", role}, {"content", content == nullptr ? json("") : *content}});
      return;
    }
    text_.clear();
    reasoning_.clear();
    calls_ = json::array();
    for (size_t i = 0; i < content->size() && !refusal_; ++i) {
      add_block((*content)[i], fmt::format("{}.content[{}]", path, i));
    }
    end(role);
  }

  json out = json::array();

 private:
  void add_block(const json& block, const std::string& path) {
    Fields fields(block, path, refusal_);
    const std::string type = fields.text("type").value_or("");
    if (type == "text") {
      text_ += fields.text("text").value_or("");
    } else if (type == "thinking") {
      reasoning_ += fields.text("thinking").value_or("");
    } else if (type == "redacted_thinking") {
    } else if (type == "tool_use") {
      const json* input = fields.object("input");
      calls_.push_back(
          {{"id", fields.text("id").value_or("")},
           {"type", "function"},
           {"function",
            {{"name", fields.text("name").value_or("")}, {"arguments", input == nullptr ? json::object() : *input}}}});
    } else if (type == "tool_result") {
      const json* content = fields.find("content");
      out.push_back({{"role", "tool"},
                     {"tool_call_id", fields.text("tool_use_id").value_or("")},
                     {"content", content == nullptr ? json("") : *content}});
    } else {
      fields.refuse("type", "text, thinking, tool_use or tool_result; this model reads text only",
                    block.is_object() && block.contains("type") ? block["type"] : json());
    }
  }

  void end(const std::string& role) {
    if (role == "assistant") {
      json answer = {{"role", role}, {"content", text_}};
      if (!reasoning_.empty()) answer["reasoning_content"] = reasoning_;
      if (!calls_.empty()) answer["tool_calls"] = calls_;
      out.push_back(std::move(answer));
    } else if (!text_.empty() || out.empty() || out.back()["role"] != "tool") {
      out.push_back({{"role", role}, {"content", text_}});
    }
  }

  Refusal& refusal_;
  std::string text_, reasoning_;
  json calls_;
};

void read_anthropic_tools(Fields& fields, ChatRequest& to, Refusal& refusal) {
  const json* tools = fields.list("tools");
  if (tools == nullptr || tools->empty()) return;
  to.tools = json::array();
  for (size_t i = 0; i < tools->size() && !refusal; ++i) {
    Fields tool((*tools)[i], fmt::format("tools[{}]", i), refusal);
    const json* schema = tool.object("input_schema");
    json function = {{"name", tool.text("name").value_or("")}};
    if (const auto description = tool.text("description")) function["description"] = *description;
    if (schema != nullptr) function["parameters"] = *schema;
    if (tool.boolean("strict").value_or(false)) function["strict"] = true;
    if (schema == nullptr && !refusal) {  // a tool that Anthropic's servers run
      to.generation.ignored.push_back(fmt::format("tools[{}]", i));
      continue;
    }
    to.tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  check_tools(to.tools, refusal);
  if (to.tools.empty()) to.tools = nullptr;
}

void read_anthropic_choice(Fields& fields, ChatRequest& to, Refusal& refusal) {
  const json* choice = fields.object("tool_choice");
  if (choice == nullptr) return;
  Fields inner(*choice, "tool_choice", refusal);
  const std::string type = inner.text("type").value_or("");
  if (type == "none") {
    to.tool_choice = ToolChoice::none;
  } else if (type == "any" || type == "tool") {
    to.tool_choice = ToolChoice::required;
    if (type == "tool") to.tool_name = inner.text("name").value_or("");
  } else if (type != "auto") {
    inner.refuse("type", "auto, any, tool or none", type);
  }
  to.parallel_tool_calls = !inner.boolean("disable_parallel_tool_use").value_or(false);
  check_choice(to, refusal);
}

void read_thinking(Fields& fields, ChatRequest& to, Refusal& refusal) {
  const json* thinking = fields.object("thinking");
  if (thinking == nullptr) return;
  const std::string type = Fields(*thinking, "thinking", refusal).text("type").value_or("");
  to.template_arguments["enable_thinking"] = type != "disabled";
}

void read_sampling(Fields& fields, Generation& g) {
  SamplingParams& s = g.text.sampling;
  if (const auto v = fields.number("temperature", 0, 100)) s.temperature = static_cast<float>(*v);
  if (const auto v = fields.number("top_p", 0, 1)) s.top_p = std::max(static_cast<float>(*v), 1e-6F);
  if (const auto v = fields.integer("top_k", -1, INT32_MAX)) s.top_k = static_cast<int32_t>(std::max<int64_t>(*v, 0));
  read_stops(fields, "stop_sequences", g.text.stops);
}

}  // namespace

Refusal parse_anthropic(const json& body, const Defaults& defaults, bool counts, ChatRequest& to) {
  Refusal refusal;
  Fields fields(body, "", refusal);
  Generation& g = to.generation;
  g.text = defaults.text;
  g.model = fields.text("model").value_or("");
  const auto limit = fields.integer("max_tokens", 1, UINT32_MAX);
  if (limit) g.text.max_tokens = static_cast<uint32_t>(*limit);
  if (!limit && !counts) fields.refuse("max_tokens", "a whole number from 1 on", nullptr);
  g.stream = fields.boolean("stream").value_or(false);
  read_sampling(fields, g);
  AnthropicMessages converter(refusal);
  if (const json* system = fields.find("system")) {
    converter.out.push_back({{"role", "system"}, {"content", content_text(*system, "system", refusal)}});
  }
  const json* messages = fields.list("messages");
  if (messages == nullptr || messages->empty())
    fields.refuse("messages", "an array with at least one message", nullptr);
  for (size_t i = 0; messages != nullptr && i < messages->size() && !refusal; ++i) {
    converter.add((*messages)[i], fmt::format("messages[{}]", i));
  }
  if (!refusal) to.messages = normalised(converter.out, refusal);
  read_anthropic_tools(fields, to, refusal);
  read_anthropic_choice(fields, to, refusal);
  read_thinking(fields, to, refusal);
  if (const auto regex = fields.text("allow_regex")) g.text.allow_regex = *regex;
  read_structured(fields, g, refusal);
  fields.pass_over({"metadata", "service_tier", "betas", "container"});
  for (std::string& name : fields.unread()) g.ignored.push_back(std::move(name));
  return refusal;
}

}  // namespace switchyard::server
