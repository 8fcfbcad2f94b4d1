// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/fields.h"

#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/base/printable.h"

namespace switchyard::server {

using json = nlohmann::ordered_json;

std::string shown(const json& value) {
  if (value.is_structured() && value.size() > 8) return value.is_array() ? "a long array" : "an object";
  return brief(nlohmann::json(value));
}

Fields::Fields(const json& object, std::string path, Refusal& refusal)
    : object_(object), path_(std::move(path)), refusal_(refusal) {
  if (object.is_object() || refusal_) return;
  const std::string name = path_.empty() ? "the request's body" : fmt::format("'{}'", path_);
  refusal_ = wrong_field(path_, fmt::format("{} must be a JSON object, not {}", name, shown(object)));
}

std::string Fields::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void Fields::refuse(std::string_view name, const std::string& must_be, const json& value) {
  if (refusal_) return;
  refusal_ = wrong_field(path_of(name), fmt::format("'{}' must be {}, not {}", path_of(name), must_be, shown(value)));
}

const json* Fields::find(std::string_view name) {
  if (!object_.is_object()) return nullptr;
  read_.emplace(name);
  const auto at = object_.find(std::string(name));
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const json* value = find(name);
  if (value == nullptr) return {};
  if (value->is_boolean()) return value->get<bool>();
  refuse(name, "true or false", *value);
  return {};
}

std::optional<double> Fields::number(std::string_view name, double low, double high) {
  const json* value = find(name);
  if (value == nullptr) return {};
  if (value->is_number()) {
    const auto number = value->get<double>();
    if (number >= low && number <= high) return number;
  }
  refuse(name, fmt::format("a number from {} to {}", low, high), *value);
  return {};
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t low, int64_t high) {
  const json* value = find(name);
  if (value == nullptr) return {};
  // Some clients write 100.0; larger numbers are out of every range.
  const bool whole = value->is_number_integer() ||
                     (value->is_number_float() && std::abs(value->get<double>()) < 1e15 &&
                      value->get<double>() == static_cast<double>(static_cast<int64_t>(value->get<double>())));
  const bool fits = whole && !(value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX);
  if (fits && value->get<int64_t>() >= low && value->get<int64_t>() <= high) return value->get<int64_t>();
  refuse(name, fmt::format("a whole number from {} to {}", low, high), *value);
  return {};
}

std::optional<std::string> Fields::text(std::string_view name) {
  const json* value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return value->get<std::string>();
  refuse(name, "a string", *value);
  return {};
}

const json* Fields::list(std::string_view name) {
  const json* value = find(name);
  if (value == nullptr || value->is_array()) return value;
  refuse(name, "an array", *value);
  return nullptr;
}

const json* Fields::object(std::string_view name) {
  const json* value = find(name);
  if (value == nullptr || value->is_object()) return value;
  refuse(name, "an object", *value);
  return nullptr;
}

void Fields::pass_over(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) read_.emplace(name);
}

std::vector<std::string> Fields::unread() const {
  std::vector<std::string> names;
  if (!object_.is_object()) return names;
  for (const auto& [name, value] : object_.items()) {
    if (!read_.contains(name)) names.push_back(path_of(name));
  }
  return names;
}

}  // namespace switchyard::server
