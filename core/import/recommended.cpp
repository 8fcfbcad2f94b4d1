// SPDX-License-Identifier: Apache-2.0
#include "core/import/recommended.h"

#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "switchyard/sampling_math.h"

namespace switchyard {
namespace {

// A setting, by its names in a program, in generation_config.json and in a GGUF file; "": there is none.
struct SamplingName {
  const char* ours;
  const char* generation;
  const char* gguf;
};
constexpr SamplingName kSamplingNames[] = {
    {"temperature", "temperature", "temp"},
    {"top_p", "top_p", "top_p"},
    {"top_k", "top_k", "top_k"},
    {"min_p", "min_p", "min_p"},
    {"repetition_penalty", "repetition_penalty", "penalty_repeat"},
    {"presence_penalty", "presence_penalty", ""},
    {"frequency_penalty", "frequency_penalty", ""},
};

void set_param(swy_sample_params& p, std::string_view name, double value) {
  if (name == "temperature") p.temperature = static_cast<float>(value);
  if (name == "top_p") p.top_p = static_cast<float>(value);
  if (name == "min_p") p.min_p = static_cast<float>(value);
  if (name == "repetition_penalty") p.repetition_penalty = static_cast<float>(value);
  if (name == "presence_penalty") p.presence_penalty = static_cast<float>(value);
  if (name == "frequency_penalty") p.frequency_penalty = static_cast<float>(value);
}

bool in_range(std::string_view name, double value) {
  constexpr double kMostTopK = 1 << 30;
  if (name == "top_k")
    return value >= 0 && value <= kMostTopK && value == static_cast<double>(static_cast<int64_t>(value));
  swy_sample_params p;
  swy_sample_params_init(&p);
  set_param(p, name, value);
  return swy_sample_params_check(&p).field == nullptr;
}

void add_entry(Recommended& out, const SamplingName& name, const char* source, double value) {
  if (in_range(name.ours, value)) {
    out.entries.emplace_back(fmt::format("sampling.{}", name.ours), fmt::format("{}", static_cast<float>(value)));
  } else {
    out.notes.push_back(fmt::format("the recommended {} of {} is out of range, and is not used", source, value));
  }
}

}  // namespace

Result<Recommended> recommended_by(std::string_view generation_config) {
  Recommended out;
  if (generation_config.empty()) return out;
  SWY_LET(const nlohmann::json g, read_json(generation_config, "generation_config.json"));
  if (!g.is_object()) return out;
  const auto samples = g.find("do_sample");
  if (samples != g.end() && samples->is_boolean() && !samples->get<bool>()) {
    out.entries.emplace_back("sampling.temperature", "0");  // the most likely token, whatever else is said
    return out;
  }
  for (const SamplingName& name : kSamplingNames) {
    const auto value = g.find(name.generation);
    if (value != g.end() && value->is_number()) add_entry(out, name, name.generation, value->get<double>());
  }
  return out;
}

Recommended recommended_by(const GgufFile& file) {
  Recommended out;
  for (const SamplingName& name : kSamplingNames) {
    const GgufValue* value = file.find(std::string("general.sampling.") + name.gguf);
    const auto number = value == nullptr ? std::nullopt : value->number();
    if (number) add_entry(out, name, name.gguf, *number);
  }
  return out;
}

}  // namespace switchyard
