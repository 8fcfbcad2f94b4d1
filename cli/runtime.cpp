// SPDX-License-Identifier: Apache-2.0
#include "cli/runtime.h"

#include <fmt/ranges.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "cli/load_watch.h"
#include "cli/model_source.h"
#include "cli/output.h"
#include "cli/plugin_faults.h"
#include "core/base/printable.h"
#include "core/draft/speculation.h"
#include "core/engine/mtp_drafter.h"
#include "core/engine/prepare.h"
#include "core/import/convert.h"
#include "core/plan/code_store.h"
#include "core/plan/tuning.h"
#include "core/plugin/stall_watch.h"

namespace switchyard::cli {

namespace {

// A log message; it may quote a file.
class PrintableMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string text = printable_line({message.payload.data(), message.payload.size()});
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<PrintableMessage>(); }
};

void set_log_level(const std::string& level) {
  static const bool once = [] {
    spdlog::set_default_logger(spdlog::stderr_color_mt("switchyard"));
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    formatter->add_flag<PrintableMessage>('*').set_pattern("switchyard: %l: %*");
    spdlog::set_formatter(std::move(formatter));
    return true;
  }();
  (void)once;
  spdlog::set_level(spdlog::level::from_str(level == "warning" ? "warn" : level));
}

}  // namespace

namespace {

// --exact reaches the cpu backend alone.
Status check_exact(const std::string& backend) {
  const auto is_cpu = [](std::string_view name) { return name.substr(0, name.find(':')) == "cpu"; };
  for (size_t at = 0; at <= backend.size();) {
    const size_t end = std::min(backend.find(',', at), backend.size());
    const std::string_view name = std::string_view(backend).substr(at, end - at);
    if (name == "auto" || is_cpu(name)) return {};
    at = end + 1;
  }
  return error(Code::usage, "--exact is an option of the cpu backend, which --backend {} does not name; leave it out",
               backend);
}

// With --backend auto that is known once everything is planned.
Status check_exact(const Model& model) {
  for (const uint32_t d : model.used_devices()) {
    if (model.devices()[d].backend == "cpu") return {};
  }
  return error(Code::usage, "--exact is an option of the cpu backend, and this model runs on {}; add --backend cpu",
               fmt::join(model.device_names(), ", "));
}

}  // namespace

Result<Registry> find_backends(const Settings& settings, const Host& host) {
  set_log_level(settings.log);
  DiscoveryOptions o = default_discovery();
  o.libraries = settings.backend_libs;
  o.search_path = settings.backend_path;
  if (!settings.backend_allow.empty()) o.allow_list = settings.backend_allow;
  o.validate = settings.validate;
  o.probe.seconds = settings.probe_seconds;
  if (settings.probe_seconds == 0) o.probe.program.clear();
  if (settings.probe_anew) o.probe.memory.clear();
  for (const std::string& text : settings.sets) {
    const size_t dot = text.find('.'), eq = text.find('=');
    if (dot == std::string::npos || eq == std::string::npos || eq < dot + 2 || dot == 0) {
      return error(Code::usage, "--set takes ID.NAME=VALUE, not '{}'", text);
    }
    o.settings[text.substr(0, dot)].push_back({text.substr(dot + 1, eq - dot - 1), text.substr(eq + 1)});
  }
  if (settings.exact) {
    SWY_TRY(check_exact(settings.backend));
    o.settings["cpu"].push_back({"exact", "1"});
  }
  static const StallWatch watch({.interrupted = [] { return interrupted.load(); },
                                 .say = [](const std::string& line) { say("switchyard: {}\n", line); }});
  Registry registry = Registry::discover(Os::real(), o, host);
  tell_of_exits();
  for (const std::string& warning : registry.warnings()) spdlog::warn("{}", warning);
  SWY_TRY(registry.check_settings());
  return registry;
}

std::string tuning_path(const Settings& settings) {
  return settings.tuning.empty() ? default_tuning_path() : settings.tuning == "off" ? "" : settings.tuning;
}

Result<std::shared_ptr<const Tuning>> tuning_of(const Settings& settings) {
  if (settings.no_tuned || settings.deterministic) return std::shared_ptr<const Tuning>();
  if (!settings.tuning.empty() && settings.tuning != "off" && !Os::real().exists(settings.tuning)) {
    return error(Code::usage, "--tuning {}: there is no such file; switchyard tune --tuning {} writes it",
                 settings.tuning, settings.tuning);
  }
  return load_tuning(Os::real(), tuning_path(settings), thread_count(settings));
}

Result<std::vector<VariantRule>> variant_rules(const Settings& settings) {
  std::vector<VariantRule> rules;
  for (const std::string& text : settings.variants) {
    SWY_LET(VariantRule rule, parse_variant_rule(text));
    rules.push_back(std::move(rule));
  }
  return rules;
}

void pin(Host& host) {
  if (host.pin()) return;
  spdlog::warn("--pin is ignored: this process may not use {} cores", host.threads());
}

namespace {
constexpr std::string_view kSyntheticPrefix = "synth:";
}

bool is_synthetic(const Settings& settings) { return settings.model.starts_with(kSyntheticPrefix); }

Result<SyntheticRequest> synthetic_request(const std::string& text) {
  SWY_LET(SyntheticRequest request, parse_synthetic(text));
  const Result<Program> demo = Program::load(Os::real(), model_path({}));
  if (demo.ok()) {  // text works as a prompt wherever the demo's tokenizer fits
    request.tokenizer_json = demo->tokenizer_json;
    request.chat_template = demo->chat_template;
    request.eos_ids.assign(demo->eos_ids.begin(), demo->eos_ids.end());
    request.tokenizer_vocab = static_cast<uint32_t>(demo->main().values[demo->main().outputs[0]].width);
  }
  return request;
}

Result<std::shared_ptr<const Program>> load_program(const Settings& settings) {
  if (is_synthetic(settings)) {
    SWY_LET(const SyntheticRequest request, synthetic_request(settings.model.substr(kSyntheticPrefix.size())));
    SWY_LET(Program program, synthetic_program(Os::real(), request, thread_count(settings)));
    return std::make_shared<const Program>(std::move(program));
  }
  SWY_LET(const ModelSource source, find_model(settings));
  SWY_LET(const std::string path, program_of(source, settings));
  SWY_LET(Program program, Program::load(Os::real(), path));
  if (settings.verify) {
    Progress bar("verifying weights");
    SWY_TRY(program.verify_weights([&](uint64_t done, uint64_t total) {
      bar.update(done, total);
      return !interrupted.load();
    }));
  }
  return std::make_shared<const Program>(std::move(program));
}

Result<Runtime> load_runtime(const Settings& settings, std::shared_ptr<Host> host) {
  const uint64_t begin = Os::real().now_ns();
  const LoadWatch watch;
  if (host == nullptr) host = std::make_shared<Host>(thread_count(settings));
  SWY_LET(Registry registry, find_backends(settings, *host));
  if (const uint32_t wanted = thread_count(settings); host->threads() < wanted) {
    spdlog::warn("only {} of {} threads could be started: the system refuses more; --threads asks for fewer",
                 host->threads(), wanted);
  }
  SWY_LET(auto program, load_program(settings));
  ModelOptions options;
  options.context = settings.context;
  options.chunk = settings.chunk;
  options.deterministic = settings.deterministic;
  options.sessions = settings.sessions;
  options.checkpoints = settings.checkpoints;
  SWY_LET(const Speculation speculation, parse_speculation(settings.speculate));
  SWY_TRY(add_speculation(speculation, *program, options));
  options.device_sampling = settings.device_sampling;
  options.routers = settings.routers;
  options.load = settings.load;
  options.verify_packed = settings.verify;
  SWY_LET(options.variants, variant_rules(settings));
  options.load_threads = thread_count(settings);
  SWY_LET(options.tuning, tuning_of(settings));
  options.code_folder = default_code_folder();
  options.cancelled = watch.cancelled();
  Progress bar("loading weights");
  options.progress = [&](uint64_t done, uint64_t total) {
    bar.update(done, total);
    return !interrupted.load();
  };
  const uint64_t free_bytes = Os::real().available_memory();
  SWY_LET(LoadedModel loaded,
          load_model(std::move(host), std::move(registry), settings.backend, std::move(program), options));
  if (const size_t n = loaded.model->weights().repacked(); n != 0) {
    spdlog::warn(
        "{} weights in this file are packed for another version of the backend, so they were packed again; "
        "to update the file, use switchyard convert {} --pack",
        n, model_path(settings));
  }
  if (const std::string_view file = draft_model_file(settings.speculate); !file.empty() && settings.load) {
    Settings other = settings;
    other.model = file;
    SWY_LET(auto draft, load_program(other));
    DraftModelSource source{fmt::format("--speculate {}", settings.speculate), std::move(draft), free_bytes};
    SWY_TRY(add_draft_model(loaded, settings.backend, std::move(source), options));
  }
  const Model& model = *loaded.model;
  if (!model.mtp_left_out().empty()) {
    spdlog::warn("--speculate {} goes without the model's multi-token prediction layer: {}", settings.speculate,
                 model.mtp_left_out());
  }
  if (settings.exact) SWY_TRY(check_exact(model));
  if (model.chunk() < std::min(settings.chunk, model.context())) {
    spdlog::warn(
        "--chunk {} is too large for this device's memory or kernels; prompts are computed {} tokens at a time",
        settings.chunk, model.chunk());
  }
  if (settings.pin) pin(*loaded.host);
  return Runtime{std::move(loaded), seconds_since(begin)};
}

Result<double> prepare(Model& model, const SamplingParams& sampling) {
  const uint64_t begin = Os::real().now_ns();
  Progress bar("preparing steps");
  SWY_TRY(prepare_steps(model, sampling, [&](uint64_t done, uint64_t total) {
    bar.update(done, total);
    return !interrupted.load();
  }));
  return seconds_since(begin);
}

}  // namespace switchyard::cli
