// SPDX-License-Identifier: Apache-2.0
// The fields that say what an answer's text must be.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/protocol/generation.h"

namespace switchyard::server {

using json = nlohmann::ordered_json;

namespace {

void set_format(AnswerFormat format, Generation& to, Refusal& refusal) {
  const std::string other = to.format ? to.format->field : to.text.allow_regex.empty() ? "" : "allow_regex";
  if (!other.empty() && !refusal) {
    refusal = wrong_field(format.field, fmt::format("'{}' and '{}' exclude each other", other, format.field));
  }
  to.format = std::move(format);
}

bool is_schema(const json& value) { return value.is_object() || value.is_boolean(); }

// A schema, which may also come as its JSON text.
void read_json(Fields& fields, std::string_view name, Generation& to, Refusal& refusal) {
  const json* value = fields.find(name);
  if (value == nullptr) return;
  if (!is_schema(*value) && !value->is_string()) return fields.refuse(name, "a JSON Schema", *value);
  std::string text = value->is_string() ? value->get<std::string>() : value->dump();
  set_format({ConstraintKind::json_schema, std::move(text), fields.path_of(name)}, to, refusal);
}

void read_choices(Fields& fields, std::string_view name, Generation& to, Refusal& refusal) {
  const json* value = fields.list(name);
  if (value == nullptr) return;
  const bool texts = std::all_of(value->begin(), value->end(), [](const json& one) { return one.is_string(); });
  if (value->empty() || !texts) return fields.refuse(name, "an array of strings", *value);
  set_format({ConstraintKind::choice, value->dump(), fields.path_of(name)}, to, refusal);
}

// json, regex, choice and grammar, whose names begin with `prefix`.
void read_named(Fields& fields, const std::string& prefix, Generation& to, Refusal& refusal) {
  read_json(fields, prefix + "json", to, refusal);
  read_choices(fields, prefix + "choice", to, refusal);
  if (auto regex = fields.text(prefix + "regex")) {
    set_format({ConstraintKind::regex, std::move(*regex), fields.path_of(prefix + "regex")}, to, refusal);
  }
  if (auto grammar = fields.text(prefix + "grammar")) {
    const auto kind = grammar->find("::=") != std::string::npos ? ConstraintKind::gbnf : ConstraintKind::lark;
    set_format({kind, std::move(*grammar), fields.path_of(prefix + "grammar")}, to, refusal);
  }
  if (fields.boolean(prefix + "json_object").value_or(false)) {
    set_format({ConstraintKind::json_object, "", fields.path_of(prefix + "json_object")}, to, refusal);
  }
}

}  // namespace

void read_structured(Fields& fields, Generation& to, Refusal& refusal) {
  read_named(fields, "guided_", to, refusal);
  const json* structured = fields.object("structured_outputs");
  if (structured == nullptr) return;
  Fields inner(*structured, "structured_outputs", refusal);
  read_named(inner, "", to, refusal);
  // A limit that is passed over would let through what the client relies on never to get.
  for (const std::string& name : inner.unread()) {
    if (!refusal) {
      refusal = wrong_field(name, fmt::format("'{}' is not supported; 'structured_outputs' takes json, json_object, "
                                              "regex, choice and grammar",
                                              name));
    }
  }
}

void read_format_type(const json& format, const std::string& path, Generation& to, Refusal& refusal) {
  Fields fields(format, path, refusal);
  const std::string type = fields.text("type").value_or("");
  if (type == "json_object") return set_format({ConstraintKind::json_object, "", path}, to, refusal);
  if (type == "text") return;
  if (type != "json_schema") {
    return fields.refuse("type", "text, json_object or json_schema",
                         format.is_object() && format.contains("type") ? format["type"] : json());
  }
  const json* inside = fields.object("json_schema");
  Fields holder(inside == nullptr ? format : *inside, inside == nullptr ? path : path + ".json_schema", refusal);
  const json* schema = holder.find("schema");
  if (schema == nullptr || !is_schema(*schema)) {
    return holder.refuse("schema", "a JSON Schema", schema == nullptr ? json() : *schema);
  }
  set_format({ConstraintKind::json_schema, schema->dump(), holder.path_of("schema")}, to, refusal);
}

}  // namespace switchyard::server
