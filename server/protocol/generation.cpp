// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/generation.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

namespace switchyard::server {

using json = nlohmann::ordered_json;

namespace {

// Numbers of the sampler that requests name as the engine does; the engine checks their ranges again.
void read_sampling(Fields& fields, SamplingParams& s) {
  const auto number = [&](const char* name, float& to, double low, double high) {
    if (const auto v = fields.number(name, low, high)) to = static_cast<float>(*v);
  };
  number("temperature", s.temperature, 0, 100);
  number("top_p", s.top_p, 0, 1);
  number("min_p", s.min_p, 0, 1);
  number("repetition_penalty", s.repetition_penalty, 0.01, 100);
  number("presence_penalty", s.presence_penalty, -2, 2);
  number("frequency_penalty", s.frequency_penalty, -2, 2);
  if (s.top_p == 0) s.top_p = 1e-6F;  // the most likely token alone; the sampler wants more than 0
  if (const auto k = fields.integer("top_k", -1, INT32_MAX)) s.top_k = static_cast<int32_t>(std::max<int64_t>(*k, 0));
  // Clients' negative seeds are seeds as well.
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX)) s.seed = static_cast<uint64_t>(*seed);
}

void read_logit_bias(Fields& fields, SamplingParams& s) {
  const json* biases = fields.object("logit_bias");
  if (biases == nullptr) return;
  for (const auto& [key, value] : biases->items()) {
    uint32_t id = 0;
    const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool is_id = failure == std::errc() && end == key.data() + key.size() && id <= INT32_MAX;
    if (!is_id || !value.is_number() || std::abs(value.get<double>()) > 100) {
      return fields.refuse("logit_bias", "an object of token ids and numbers from -100 to 100", *biases);
    }
    s.biases.push_back({id, value.get<float>()});
  }
  // "7" and "07" are one token.
  std::stable_sort(s.biases.begin(), s.biases.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  const auto same = [](const auto& a, const auto& b) { return a.id == b.id; };
  s.biases.erase(std::unique(s.biases.begin(), s.biases.end(), same), s.biases.end());
}

void read_stream(Fields& fields, Generation& to, Refusal& refusal) {
  to.stream = fields.boolean("stream").value_or(false);
  if (const json* options = fields.object("stream_options")) {
    Fields inner(*options, "stream_options", refusal);
    to.include_usage = inner.boolean("include_usage").value_or(false);
    for (std::string& name : inner.unread()) to.ignored.push_back(std::move(name));
  }
}

}  // namespace

void read_stops(Fields& fields, std::string_view name, std::vector<std::string>& to) {
  const json* value = fields.find(name);
  if (value == nullptr) return;
  const auto is_text = [](const json& v) { return v.is_string(); };
  const bool list =
      value->is_array() && value->size() <= kMostStops && std::all_of(value->begin(), value->end(), is_text);
  if (!list && !value->is_string()) {
    return fields.refuse(name, fmt::format("a string or an array of at most {} strings", kMostStops), *value);
  }
  to.clear();
  if (value->is_string()) to.push_back(value->get<std::string>());
  if (list) to = value->get<std::vector<std::string>>();
  std::erase(to, "");
}

void read_generation(Fields& fields, const Defaults& defaults, Generation& to, Refusal& refusal) {
  to.text = defaults.text;
  to.model = fields.text("model").value_or("");
  read_sampling(fields, to.text.sampling);
  read_logit_bias(fields, to.text.sampling);
  read_stops(fields, "stop", to.text.stops);
  read_stream(fields, to, refusal);
  if (const auto n = fields.integer("n", 1, kMostChoices)) to.choices = static_cast<uint32_t>(*n);
  if (const auto regex = fields.text("allow_regex")) to.text.allow_regex = *regex;
  read_structured(fields, to, refusal);
  if (const auto ignore = fields.boolean("ignore_eos")) to.text.ignore_eos = *ignore;
  if (const auto priority = fields.integer("priority", INT32_MIN, INT32_MAX)) {
    to.priority = static_cast<int32_t>(*priority);
  }
  to.cache_scope = fields.text("cache_salt").value_or("");
  to.cache = fields.boolean("cache_prompt").value_or(true);
  if (const auto where = fields.text("sampling")) {
    const auto path = parse_path(*where);
    if (path.ok()) {
      to.text.path = *path;
    } else if (!refusal) {
      refusal = wrong_field("sampling", "'sampling' must be auto, fused, candidates or logits, not '" + *where + "'");
    }
  }
  fields.pass_over({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"});
}

}  // namespace switchyard::server
