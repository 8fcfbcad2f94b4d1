// SPDX-License-Identifier: Apache-2.0
// Generation: what a request of any protocol asks of the engine, besides its prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/constrain/constraint.h"
#include "core/generate/text_generation.h"
#include "server/protocol/fields.h"

namespace switchyard::server {

constexpr uint32_t kMostChoices = 128, kMostStops = 64, kMostPrompts = 256;

// What the answer's text must be. Reasoning before it is free, and calls of tools may stand for it.
struct AnswerFormat {
  ConstraintKind kind = ConstraintKind::json_object;
  std::string text;   // as Constraint::compile takes it
  std::string field;  // of the request, for messages
};

struct Generation {
  std::string model;
  TextOptions text;  // max_tokens 0: as many as the context has room for
  std::optional<AnswerFormat> format;
  uint32_t choices = 1;
  bool stream = false, include_usage = false;
  bool logprobs = false;
  int32_t priority = 0;
  std::string cache_scope;
  bool cache = true;
  std::vector<std::string> ignored;  // fields that have no effect
};

// What requests get that say nothing else.
struct Defaults {
  TextOptions text;
};

// The fields that chat completions, completions and the engine's extensions share: sampling, seeds, stop strings,
// streaming.
void read_generation(Fields& fields, const Defaults& defaults, Generation& to, Refusal& refusal);

// The extensions that name a format: structured_outputs, guided_json and the like.
void read_structured(Fields& fields, Generation& to, Refusal& refusal);
// OpenAI's form, {"type": "json_schema", ...}, with the schema in it or in its "json_schema". `path` names it.
void read_format_type(const nlohmann::ordered_json& format, const std::string& path, Generation& to, Refusal& refusal);

// `name` is a string or an array of them.
void read_stops(Fields& fields, std::string_view name, std::vector<std::string>& to);

}  // namespace switchyard::server
