// SPDX-License-Identifier: Apache-2.0
#include "core/models/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/base/printable.h"

namespace switchyard {

using nlohmann::json;

namespace {

// One id or a list of them, added to `ids` unless there.
Status add_eos(const json& object, const char* file, std::vector<uint32_t>& ids) {
  constexpr size_t kMost = 1024;
  const auto it = object.find("eos_token_id");
  if (it == object.end() || it->is_object()) return {};
  if (it->size() > kMost) {
    return error(Code::invalid_data, "{}: eos_token_id lists {} tokens; at most {} are read", file, it->size(), kMost);
  }
  for (const json& id : *it) {  // a number is a list of itself
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) continue;
    if (std::find(ids.begin(), ids.end(), id.get<uint32_t>()) == ids.end()) ids.push_back(id.get<uint32_t>());
  }
  return {};
}

std::string type_of(const json& object, const std::string& otherwise) {
  const auto it = object.find("model_type");
  return it != object.end() && it->is_string() ? it->get<std::string>() : otherwise;
}

}  // namespace

Result<Config> Config::parse(std::string_view config, std::string_view generation) {
  SWY_LET(const json whole, read_json(config, "config.json"));
  if (!whole.is_object()) return error(Code::invalid_data, "config.json is not a JSON object");
  const bool nested = whole.contains("text_config") && whole["text_config"].is_object();
  json text = nested ? whole["text_config"] : whole;
  const char* tied = "tie_word_embeddings";  // the one setting that stands outside as often as inside
  if ((!text.contains(tied) || text[tied].is_null()) && whole.contains(tied)) text[tied] = whole[tied];
  Config c(text, {});
  c.model_type = type_of(whole, type_of(text, "?"));
  SWY_TRY(add_eos(text, "config.json", c.eos_ids));
  if (!generation.empty()) {
    SWY_LET(const json g, read_json(generation, "generation_config.json"));
    if (g.is_object()) SWY_TRY(add_eos(g, "generation_config.json", c.eos_ids));
  }
  return c;
}

Config::Config(const json& settings, Labels labels)
    : settings_(std::make_shared<const json>(settings)), labels_(std::move(labels)) {}

Config Config::with(const std::string& name, const json& value) const {
  json changed = *settings_;
  changed[name] = value;
  Config c = *this;
  c.settings_ = std::make_shared<const json>(std::move(changed));
  return c;
}

const json* Config::find(const std::string& name) const {
  const auto it = settings_->find(name);
  return it == settings_->end() || it->is_null() ? nullptr : &*it;
}

std::string Config::label(const std::string& name) const { return labels_.name ? labels_.name(name) : name; }

void Config::require(bool ok, const std::string& message, Code code) const {
  if (!ok && status_->ok()) *status_ = Status(code, labels_.source + ": " + message);
}

uint32_t Config::fail(const std::string& name, const std::string& must) const {
  require(false, fmt::format("{} is {}; it must be {}", label(name), brief(*find(name)), must));
  return 1;
}

uint32_t Config::count(const std::string& name, uint32_t most) const {
  const json* f = find(name);
  if (f == nullptr) {
    if (ok()) *status_ = Status(Code::invalid_data, fmt::format("{} has no {}", labels_.source, label(name)));
    return 1;
  }
  const bool fits = f->is_number_integer() && f->get<int64_t>() >= 1 && f->get<int64_t>() <= most;
  return fits ? f->get<uint32_t>() : fail(name, fmt::format("a whole number from 1 to {}", most));
}

uint32_t Config::count_or(const std::string& name, uint32_t otherwise) const {
  return find(name) == nullptr ? otherwise : count(name);
}

double Config::number_or(const std::string& name, double otherwise) const {
  constexpr double kLeast = 1e-30, kMost = 1e30;  // a range that fp32 represents easily
  const json* f = find(name);
  const double value = f == nullptr ? otherwise : f->is_number() ? f->get<double>() : 0;
  if (!(value >= kLeast && value <= kMost)) {
    fail(name, fmt::format("a number from {} to {}", kLeast, kMost));
    return 1;
  }
  return value;
}

bool Config::flag_or(const std::string& name, bool otherwise) const {
  const json* f = find(name);
  if (f == nullptr) return otherwise;
  if (!f->is_boolean()) return fail(name, "true or false") == 0;
  return f->get<bool>();
}

std::string Config::text_or(const std::string& name, const std::string& otherwise) const {
  const json* f = find(name);
  return f != nullptr && f->is_string() ? f->get<std::string>() : otherwise;
}

Config Config::inner(const std::string& name) const {
  const json* f = find(name);
  Config c = *this;
  c.settings_ = std::make_shared<const json>(f != nullptr && f->is_object() ? *f : json::object());
  return c;
}

void Config::only_text(const std::string& name, const std::string& value) const {
  const std::string is = text_or(name, value);
  require(is == value, fmt::format("{} '{}' is not supported; {} is", label(name), printable(is), value),
          Code::unsupported);
}

void Config::only_flag(const std::string& name, bool value) const {
  require(flag_or(name, value) == value, fmt::format("{} {} is not supported", label(name), !value), Code::unsupported);
}

}  // namespace switchyard
