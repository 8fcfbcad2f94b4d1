// SPDX-License-Identifier: Apache-2.0
// switchyard pull: a model of the hub, fetched and converted.
#include "cli/output.h"
#include "cli/pull_model.h"
#include "cli/settings.h"
#include "cli/signals.h"
#include "core/base/status.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/model_source.h"

namespace switchyard::cli {
namespace {

struct PullFlags {
  std::string name;
  PullLimits limits;
  Settings settings;  // threads
  bool fetch_only = false, json = false;
};

Status pull_command(const PullFlags& o) {
  const auto name = hub::parse_name(o.name);
  if (!name) {
    return error(Code::usage, "'{}' is no name of a model of the hub; it is OWNER/NAME, or OWNER/NAME:QUANT", o.name);
  }
  PullLimits limits = o.limits;
  limits.any_family = o.fetch_only;
  SWY_LET(const PulledModel pulled, pull_model(*name, limits));
  SWY_LET(const ModelSource source, source_of(pulled.model));
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const std::string& file : pulled.model.choice.files) files.push_back(pulled.model.folder + "/" + file);
  nlohmann::ordered_json out = {{"name", pulled.model.name.text()},
                                {"commit", pulled.model.commit},
                                {"path", source.path},
                                {"files", files},
                                {"bytes", pulled.model.choice.bytes},
                                {"fetched_bytes", pulled.fetched_bytes},
                                {"seconds", pulled.seconds}};
  if (!o.fetch_only) {
    SWY_LET(out["converted"], program_of(source, o.settings));
  }
  if (o.json) {
    print_json(out);
    return {};
  }
  const std::string shown = source.origin.empty() ? pulled.model.name.text() : source.origin;
  const std::string done = pulled.fetched_bytes == 0
                               ? "here already, as the hub has it"
                               : fmt::format("{} fetched in {:.1f} s", size_text(pulled.fetched_bytes), pulled.seconds);
  fmt::print("{}: {}; {}\n", shown, done,
             o.fetch_only ? "it is in " + source.path : "try: switchyard run -m " + shown + " \"Once upon a time\"");
  return {};
}

}  // namespace

void add_pull(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<PullFlags>();
  CLI::App* c = app.add_subcommand("pull", "Fetch a model from the Hugging Face hub, and convert it");
  c->footer(
      "Example: switchyard pull unsloth/Qwen3.5-35B-A3B-GGUF            # Q4_K_M, or what is nearest to it\n"
      "         switchyard pull unsloth/Qwen3.5-35B-A3B-GGUF:Q8_0       # this quantization\n"
      "         switchyard pull Qwen/Qwen3-0.6B:i8                      # a checkpoint, converted to this encoding\n"
      "Afterwards the name is a model everywhere: switchyard run -m unsloth/Qwen3.5-35B-A3B-GGUF \"...\". The same\n"
      "without pull fetches the model first.\n"
      "Files go where other programs of the hub keep them, and what is there is not fetched again. A pull that was\n"
      "interrupted continues where it was. Variables: HF_TOKEN for private and gated models, HF_HOME or HF_HUB_CACHE\n"
      "for the place, HF_ENDPOINT for another hub, HF_HUB_OFFLINE=1 to fetch nothing, https_proxy for a proxy.");
  c->add_option("name", o->name, "OWNER/NAME, with :QUANT or :FILE to choose among several")->required();
  c->add_flag("--fetch-only", o->fetch_only, "do not convert the model; fetch also models that cannot be converted");
  c->add_option("--attempts", o->limits.attempts, "attempts of each request, until some bytes arrive")
      ->check(CLI::Range(1u, 100u))
      ->capture_default_str();
  c->add_option("--stall", o->limits.stall_seconds, "seconds after which a silent server is given up")
      ->check(CLI::Range(1u, 3600u))
      ->capture_default_str();
  c->add_option("--threads", o->settings.threads, "threads that convert; 0: one per core")->check(thread_range());
  c->add_flag("--json", o->json, "print the result as JSON");
  set_action(*c, exit_code, [o] { return pull_command(*o); });
}

}  // namespace switchyard::cli
