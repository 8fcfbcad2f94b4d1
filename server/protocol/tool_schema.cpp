// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/tool_schema.h"

#include <nlohmann/json.hpp>

#include "core/base/json.h"

namespace switchyard::server {

using json = nlohmann::ordered_json;

namespace {

void add_type(const json& name, ParameterType& to) {
  if (name == "string") to.text = true;
  if (name == "integer" || name == "number") to.number = true;
  if (name == "boolean") to.boolean = true;
  if (name == "null") to.null = true;
  if (name == "array") to.list = true;
  if (name == "object") to.object = true;
}

void add_kind(const json& value, ParameterType& to) {
  if (value.is_string()) to.text = true;
  if (value.is_number()) to.number = true;
  if (value.is_boolean()) to.boolean = true;
  if (value.is_null()) to.null = true;
  if (value.is_array()) to.list = true;
  if (value.is_object()) to.object = true;
}

bool none(const ParameterType& t) { return !(t.text || t.number || t.boolean || t.null || t.list || t.object); }

void add_schema(const json& schema, ParameterType& to) {
  if (!schema.is_object()) return;
  if (schema.contains("type")) {
    const json& type = schema["type"];
    add_type(type, to);
    for (const json& one : type.is_array() ? type : json::array()) add_type(one, to);
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    if (!schema.contains(key) || !schema[key].is_array()) continue;
    for (const json& one : schema[key]) add_schema(one, to);
  }
  if (schema.contains("enum") && schema["enum"].is_array() && none(to)) {
    for (const json& one : schema["enum"]) add_kind(one, to);
  }
  if (schema.contains("const") && none(to)) add_kind(schema["const"], to);
  if (schema.contains("nullable") && schema["nullable"] == true) to.null = true;
}

}  // namespace

ToolSchemas::ToolSchemas(const json& tools) {
  if (!tools.is_array()) return;
  for (const json& tool : tools) {
    const json& function = tool["function"];
    auto& types = types_[function["name"].get<std::string>()];
    if (!function.contains("parameters") || !function["parameters"].is_object()) continue;
    const json& parameters = function["parameters"];
    if (!parameters.contains("properties") || !parameters["properties"].is_object()) continue;
    for (const auto& [name, schema] : parameters["properties"].items()) {
      ParameterType type;
      add_schema(schema, type);
      if (none(type)) type = {true, true, true, true, true, true};  // a schema that says nothing, or a reference
      types[name] = type;
    }
  }
}

ParameterType ToolSchemas::type_of(std::string_view function, std::string_view parameter) const {
  constexpr ParameterType kText{.text = true};
  const auto tool = types_.find(function);
  if (tool == types_.end()) return kText;
  const auto found = tool->second.find(parameter);
  return found == tool->second.end() ? kText : found->second;
}

std::string json_value(std::string_view text, const ParameterType& type) {
  if (type.only_text()) return json_string(text);
  const size_t begin = text.find_first_not_of(" \t\r\n");
  const size_t end = text.find_last_not_of(" \t\r\n");
  const std::string bare(begin == std::string_view::npos ? "" : text.substr(begin, end - begin + 1));
  // Templates print these as Python does.
  if (type.boolean && (bare == "true" || bare == "True")) return "true";
  if (type.boolean && (bare == "false" || bare == "False")) return "false";
  if (type.null && (bare == "null" || bare == "None")) return "null";
  const auto read = read_ordered_json(bare, "value");
  const bool fits = read.ok() && ((read->is_number() && type.number) || (read->is_array() && type.list) ||
                                  (read->is_object() && type.object) || (read->is_string() && type.text));
  return fits ? bare : json_string(text);
}

std::string json_piece(std::string_view text) {
  std::string out = json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  return out.substr(1, out.size() - 2);
}

std::string json_string(std::string_view text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace switchyard::server
