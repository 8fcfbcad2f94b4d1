// SPDX-License-Identifier: Apache-2.0
#include "cli/chat_set.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

namespace switchyard::cli {
namespace {

// The flags of `chat`, on options that have values already.
struct Flags {
  CLI::App app;
  TextFlags text;

  explicit Flags(const TextOptions& options) {
    text.options = options;
    text.seed = options.sampling.seed.value_or(0);
    add_text_flags(app, text, options.max_tokens);
  }

  // Without --help, and without --sampling, which decides how the model is loaded.
  std::vector<const CLI::Option*> settable() const {
    std::vector<const CLI::Option*> all;
    for (const CLI::Option* o : app.get_options()) {
      if (!o->get_lnames().empty() && o->get_lnames()[0] != "help" && o->get_lnames()[0] != "sampling") {
        all.push_back(o);
      }
    }
    return all;
  }
};

// What a flag limits the text to; NULL for other flags.
std::string* constraint_of(TextOptions& options, const std::string& name) {
  if (name == "allow-regex") return &options.allow_regex;
  if (name == "json-schema") return &options.json_schema;
  return name == "grammar" ? &options.grammar : nullptr;
}

Status no_such_option(const Flags& flags, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::Option* o : flags.settable()) names.push_back(o->get_lnames()[0]);
  return error(Code::usage, "there is no option '{}'; there are {}", name, fmt::join(names, ", "));
}

Status parse(Flags& flags, const std::string& name, const std::string& value) {
  try {
    flags.app.parse(std::vector<std::string>{"--" + name + "=" + value});
  } catch (const CLI::ParseError& e) {
    return Status(Code::usage, e.what());
  }
  return {};
}

}  // namespace

Status set_option(TextOptions& options, const LoadedModel& model, const std::string& name, const std::string& value) {
  Flags flags(options);
  const auto known = flags.settable();
  const bool exists =
      std::any_of(known.begin(), known.end(), [&](const CLI::Option* o) { return o->get_lnames()[0] == name; });
  if (!exists) return no_such_option(flags, name);
  TextOptions& o = flags.text.options;
  if (value == "none" && name == "stop") {
    o.stops.clear();
  } else if (std::string* constraint = constraint_of(o, name); value == "none" && constraint != nullptr) {
    constraint->clear();
  } else {
    SWY_TRY(parse(flags, name, value));
  }
  if (name == "seed") o.sampling.seed = flags.text.seed;
  SWY_TRY(Sampler::create(o.sampling, model.model->vocab()).status());
  SWY_TRY(TextGeneration::create(*model.model, model.tokenizer.get(), o, {}).status());
  options = o;
  return {};
}

std::vector<OptionValue> option_values(const TextOptions& options) {
  const Flags flags(options);
  std::vector<OptionValue> all;
  for (const CLI::Option* o : flags.settable()) {
    const std::string name = o->get_lnames()[0];
    std::string value = o->get_default_str();
    if (name == "seed") value = std::to_string(flags.text.seed);
    if (name == "stop") value = options.stops.empty() ? "none" : fmt::format("{}", fmt::join(options.stops, " | "));
    TextOptions copy = options;
    if (const std::string* constraint = constraint_of(copy, name)) {
      value = constraint->empty()     ? "none"
              : name == "allow-regex" ? *constraint
                                      : "given";  // that one is a file's text
    }
    if (name == "ignore-eos") value = options.ignore_eos ? "true" : "false";
    all.push_back({name, value, o->get_description()});
  }
  return all;
}

}  // namespace switchyard::cli
