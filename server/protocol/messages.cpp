// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/messages.h"

#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "server/protocol/fields.h"

namespace switchyard::server {

using json = nlohmann::ordered_json;

namespace {

// The text of one part of a content; NULL: it is no text.
const std::string* part_text(const json& part) {
  if (part.is_string()) return &part.get_ref<const std::string&>();
  for (const char* key : {"text", "refusal"}) {
    if (part.is_object() && part.contains(key) && part[key].is_string())
      return &part[key].get_ref<const std::string&>();
  }
  return nullptr;
}

}  // namespace

std::string content_text(const json& content, const std::string& field, Refusal& refusal) {
  if (content.is_null()) return {};
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  for (size_t i = 0; content.is_array() && i < content.size(); ++i) {
    const std::string* part = part_text(content[i]);
    if (part == nullptr) {
      const std::string name = fmt::format("{}[{}]", field, i);
      if (!refusal)
        refusal = wrong_field(name, fmt::format("'{}' is not a text part; this model reads text only", name));
      return {};
    }
    text += *part;
  }
  if (!content.is_array() && !refusal) {
    refusal =
        wrong_field(field, fmt::format("'{}' must be a string or an array of parts, not {}", field, shown(content)));
  }
  return text;
}

json arguments_object(const json& arguments) {
  if (arguments.is_object()) return arguments;
  if (!arguments.is_string()) return json::object();
  const auto& text = arguments.get_ref<const std::string&>();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return json::object();
  auto read = read_ordered_json(text, "arguments");
  return read.ok() && read->is_object() ? std::move(*read) : json{{"arguments", text}};
}

json with_strings(const json& value, const std::function<std::string(std::string_view)>& of) {
  if (value.is_string()) return of(value.get_ref<const std::string&>());
  if (value.is_array()) {
    json out = json::array();
    for (const json& v : value) out.push_back(with_strings(v, of));
    return out;
  }
  if (value.is_object()) {
    json::object_t out;
    for (const auto& [key, v] : value.items()) out.push_back({of(key), with_strings(v, of)});
    return out;
  }
  return value;
}

namespace {

json tool_calls(const json& calls, const std::string& path, Refusal& refusal) {
  json out = json::array();
  if (!calls.is_array()) {
    if (!refusal) refusal = wrong_field(path, fmt::format("'{}' must be an array, not {}", path, shown(calls)));
    return out;
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    Fields call(calls[i], fmt::format("{}[{}]", path, i), refusal);
    const json* function = call.object("function");
    if (function == nullptr) {
      call.refuse("function", "an object", nullptr);
      return out;
    }
    Fields inner(*function, call.path_of("function"), refusal);
    const auto name = inner.text("name");
    if (!name) inner.refuse("name", "a string", nullptr);
    const json* arguments = inner.find("arguments");
    json made = {{"name", name.value_or("")}};
    made["arguments"] = arguments == nullptr ? json::object() : arguments_object(*arguments);
    out.push_back({{"id", call.text("id").value_or("")}, {"type", "function"}, {"function", std::move(made)}});
  }
  return out;
}

struct Normaliser {
  explicit Normaliser(Refusal& r) : refusal(r) {}
  void add(const json& message, const std::string& path) {
    Fields fields(message, path, refusal);
    const std::string role = fields.text("role").value_or("");
    const json* content = fields.find("content");
    std::string text = content_text(content == nullptr ? json() : *content, fields.path_of("content"), refusal);
    if (role == "system" || role == "developer") {
      if (instructed && !text.empty() && !instructions.empty()) instructions += "\n\n";
      instructions += text;
      instructed = true;
    } else if (role == "user") {
      out.push_back({{"role", "user"}, {"content", std::move(text)}});
    } else if (role == "assistant") {
      add_assistant(fields, std::move(text));
    } else if (role == "tool" || role == "function") {
      json result = {{"role", "tool"}, {"content", std::move(text)}};
      if (const auto id = fields.text("tool_call_id")) result["tool_call_id"] = *id;
      if (const auto name = fields.text("name")) result["name"] = *name;
      out.push_back(std::move(result));
    } else if (!refusal) {
      const std::string name = fields.path_of("role");
      refusal = wrong_field(name, fmt::format("'{}' must be system, developer, user, assistant or tool, not {}", name,
                                              message.contains("role") ? shown(message["role"]) : "absent"));
    }
  }

  void add_assistant(Fields& fields, std::string text) {
    json answer = {{"role", "assistant"}, {"content", std::move(text)}};
    for (const char* key : {"reasoning_content", "reasoning"}) {
      const json* reasoning = fields.find(key);
      if (reasoning != nullptr && reasoning->is_string()) answer["reasoning_content"] = *reasoning;
    }
    if (const json* calls = fields.find("tool_calls"); calls != nullptr && !calls->empty()) {
      answer["tool_calls"] = tool_calls(*calls, fields.path_of("tool_calls"), refusal);
    }
    out.push_back(std::move(answer));
  }

  Refusal& refusal;
  std::string instructions;
  bool instructed = false;
  json out = json::array();
};

}  // namespace

json normalised(const json& messages, Refusal& refusal) {
  Normaliser n(refusal);
  for (size_t i = 0; i < messages.size() && !refusal; ++i) {
    if (!messages[i].is_object()) {
      const std::string path = fmt::format("messages[{}]", i);
      refusal = wrong_field(path, fmt::format("'{}' must be an object, not {}", path, shown(messages[i])));
      break;
    }
    n.add(messages[i], fmt::format("messages[{}]", i));
  }
  if (!n.instructed) return std::move(n.out);
  json all = json::array({{{"role", "system"}, {"content", n.instructions}}});
  for (json& m : n.out) all.push_back(std::move(m));
  return all;
}

}  // namespace switchyard::server
