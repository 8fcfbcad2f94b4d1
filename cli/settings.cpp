// SPDX-License-Identifier: Apache-2.0
#include "cli/settings.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <string_view>
#include <thread>

#include "cli/command.h"
#include "core/draft/speculation.h"

namespace switchyard::cli {

const std::vector<SettingInfo>& setting_table() {
  static const std::vector<SettingInfo> table = {
      {"--model,-m", "SWITCHYARD_MODEL",
       "model file (.swy or .gguf), or OWNER/NAME[:QUANT] of a model of the hub (switchyard pull --help); without it "
       "the "
       "demo model"},
      {"--backend", "SWITCHYARD_BACKEND",
       "auto, one backend (cpu, cuda:1), or several in order of preference (mine,cpu)"},
      {"--backend-lib", "", "load a backend from this file (.so), by its absolute path; may be given more than once"},
      {"--backend-path", "SWITCHYARD_BACKEND_PATH",
       "further folders with backends, searched first: absolute paths, separated by ':'"},
      {"--backend-allow", "SWITCHYARD_BACKEND_ALLOW",
       "load only backends whose SHA-256 is in this file, which sha256sum writes"},
      {"--set", "SWITCHYARD_SET",
       "set an option of a backend: ID.NAME=VALUE; switchyard backends --details lists them"},
      {"--variant", "SWITCHYARD_VARIANTS", "force a kernel for an operation (OP=KERNEL), or forbid one (OP=!KERNEL)"},
      {"--threads", "SWITCHYARD_THREADS", "threads for backends that compute on the CPU; 0: one per core"},
      {"--pin", "SWITCHYARD_PIN", "tie each of these threads to one core; use it if nothing else runs on the machine"},
      {"--ctx", "SWITCHYARD_CTX", "tokens that a session can hold; 0: as many as the model allows, at most 4096"},
      {"--chunk", "SWITCHYARD_CHUNK",
       "tokens of a prompt that are computed in one step; 0: 2048 on the CPU, 8192 elsewhere; fewer if memory is "
       "short"},
      {"--deterministic", "SWITCHYARD_DETERMINISTIC",
       "use only kernels whose results do not depend on the rest of the batch"},
      {"--exact", "SWITCHYARD_EXACT",
       "compute with floating-point activations instead of 8-bit ones: short for --set cpu.exact=1"},
      {"--verify", "SWITCHYARD_VERIFY", "check the checksums of all weights while loading"},
      {"--validate", "SWITCHYARD_VALIDATE",
       "check every call to and from a backend against the rules of the plugin ABI; slower"},
      {"--tuning", "SWITCHYARD_TUNING",
       "measurements of switchyard tune that choose between kernels: a file, or off; without it, those in the user's "
       "cache folder"},
      {"--no-tuned", "SWITCHYARD_NO_TUNED",
       "ignore measurements of switchyard tune; choose kernels by the backends' estimates"},
      {"--probe-seconds", "SWITCHYARD_PROBE_SECONDS",
       "seconds that a new backend file gets to pass a trial in a separate process; 0: load it without a trial"},
      {"--log", "SWITCHYARD_LOG", "which messages go to standard error: debug, info, warning, error or off"},
  };
  return table;
}

namespace {

const SettingInfo& info(const char* flag) {
  const auto& table = setting_table();
  return *std::find_if(table.begin(), table.end(), [&](const SettingInfo& i) {
    const std::string_view names = i.flag;  // "--model,-m"
    return names.substr(0, names.find(',')) == flag;
  });
}

CLI::Option* described(CLI::Option* option, const SettingInfo& i) {
  if (*i.env != '\0') option->envname(i.env);
  return option->group("Model and backend");
}

}  // namespace

uint32_t cores() { return std::max(1u, std::thread::hardware_concurrency()); }

uint32_t thread_count(const Settings& settings) { return settings.threads != 0 ? settings.threads : cores(); }

CLI::Validator thread_range() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        const std::string range =
            fmt::format("a whole number from 1 to {}, the cores of this machine, or 0 for all", cores());
        uint32_t n = 0;
        const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n);
        const bool ok = ec == std::errc() && end == text.data() + text.size() && n <= cores();
        return ok ? "" : fmt::format("'{}' is not {}", text, range);
      },
      "0 to the cores of this machine");
}

void add_model(CLI::App& command, Settings& s, const char* positional) {
  const SettingInfo& i = info("--model");
  const std::string names = std::string(i.flag) + (*positional != '\0' ? "," : "") + positional;
  set_input(*described(command.add_option(names, s.model, i.help), i));
}

void add_backend_settings(CLI::App& command, Settings& s) {
  const auto value = [&](const char* flag, auto& target) {
    return described(command.add_option(info(flag).flag, target, info(flag).help), info(flag));
  };
  set_input(*value("--backend-lib", s.backend_libs)->allow_extra_args(false));
  value("--backend-path", s.backend_path);
  set_input(*value("--backend-allow", s.backend_allow));
  value("--set", s.sets)->delimiter(',')->allow_extra_args(false);
  value("--probe-seconds", s.probe_seconds)->check(CLI::Range(0.0, 3600.0))->capture_default_str();
  value("--log", s.log)->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}))->capture_default_str();
}

void add_speculate(CLI::App& command, Settings& s) {
  command
      .add_option("--speculate", s.speculate,
                  "verify several guessed tokens in a step; each token is still the model's own draw: auto (as many as "
                  "pay), mtp (three by the model's own multi-token prediction layer, always), ngram (what followed the "
                  "same tokens before, always), model:FILE (as auto, with a smaller model for the layer) or off")
      ->check(CLI::Validator(
          [](const std::string& text) {
            const auto parsed = parse_speculation(text);
            if (parsed.ok()) return std::string();
            return fmt::format("'{}' must be auto, mtp, ngram, model:FILE or off", text);
          },
          "auto|mtp|ngram|model:FILE|off"))
      ->capture_default_str()
      ->group("Sampling");
}

void add_settings(CLI::App& command, Settings& s, const char* positional) {
  const auto value = [&](const char* flag, auto& target) {
    return described(command.add_option(info(flag).flag, target, info(flag).help), info(flag));
  };
  add_model(command, s, positional);
  value("--backend", s.backend)->capture_default_str();
  add_backend_settings(command, s);
  value("--variant", s.variants)->delimiter(',')->allow_extra_args(false);
  value("--threads", s.threads)->check(thread_range())->capture_default_str();
  described(command.add_flag(info("--pin").flag, s.pin, info("--pin").help), info("--pin"));
  value("--ctx", s.context)->check(CLI::Range(0u, 1u << 24))->capture_default_str();
  value("--chunk", s.chunk)->check(CLI::Range(0u, 65536u))->capture_default_str();
  described(command.add_flag(info("--deterministic").flag, s.deterministic, info("--deterministic").help),
            info("--deterministic"));
  described(command.add_flag(info("--exact").flag, s.exact, info("--exact").help), info("--exact"));
  described(command.add_flag(info("--verify").flag, s.verify, info("--verify").help), info("--verify"));
  set_input(*value("--tuning", s.tuning));
  described(command.add_flag(info("--no-tuned").flag, s.no_tuned, info("--no-tuned").help), info("--no-tuned"));
  described(command.add_flag(info("--validate").flag, s.validate, info("--validate").help), info("--validate"));
}

}  // namespace switchyard::cli
