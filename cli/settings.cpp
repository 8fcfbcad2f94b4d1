#include "cli/settings.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <string_view>
#include <thread>

namespace switchyard::cli {

const std::vector<SettingInfo>& setting_table() {
  static const std::vector<SettingInfo> table = {
      {"--model,-m", "SWITCHYARD_MODEL", "program file (.swy); without it the demo model"},
      {"--backend", "SWITCHYARD_BACKEND",
       "auto, one backend (cpu, cuda:1), or a list in order of preference (mine,cpu)"},
      {"--backend-lib", "", "a backend's .so to try first, as an absolute path; may be given more than once"},
      {"--backend-path", "SWITCHYARD_BACKEND_PATH", "absolute folders to search for backends first, separated by ':'"},
      {"--set", "SWITCHYARD_SET", "option of a backend: ID.NAME=VALUE; switchyard backends lists them"},
      {"--variant", "SWITCHYARD_VARIANTS", "force a kernel for an operation (OP=KERNEL) or forbid one (OP=!KERNEL)"},
      {"--threads", "SWITCHYARD_THREADS", "threads that CPU backends compute on; 0: one per core"},
      {"--pin", "SWITCHYARD_PIN",
       "keep each of these threads on a core of its own: for machines that run nothing else"},
      {"--ctx", "SWITCHYARD_CTX", "tokens that a session can hold; 0: the model's, at most 4096"},
      {"--chunk", "SWITCHYARD_CHUNK",
       "tokens of a prompt that are computed in one step; 0: 2048 on the CPU, 8192 elsewhere; fewer if memory is "
       "short"},
      {"--deterministic", "SWITCHYARD_DETERMINISTIC",
       "only kernels whose results do not depend on the rest of the batch"},
      {"--exact", "SWITCHYARD_EXACT", "activations in floating point instead of 8 bits: short for --set cpu.exact=1"},
      {"--verify", "SWITCHYARD_VERIFY", "compare the checksums of all weights when loading"},
      {"--validate", "SWITCHYARD_VALIDATE", "check every call of every backend against the plugin ABI's rules; slower"},
      {"--tuning", "SWITCHYARD_TUNING",
       "file of switchyard tune that decides between kernels; without it the user's own, off: none"},
      {"--no-tuned", "SWITCHYARD_NO_TUNED", "choose kernels by the backends' estimates alone"},
      {"--probe-seconds", "SWITCHYARD_PROBE_SECONDS",
       "time that a backend's file has to prove itself in a process of its own before it is opened; 0: untried"},
      {"--log", "SWITCHYARD_LOG", "messages on stderr: debug, info, warning, error or off"},
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
  described(command.add_option(names, s.model, i.help), i);
}

void add_backend_settings(CLI::App& command, Settings& s) {
  const auto value = [&](const char* flag, auto& target) {
    return described(command.add_option(info(flag).flag, target, info(flag).help), info(flag));
  };
  value("--backend-lib", s.backend_libs)->allow_extra_args(false);
  value("--backend-path", s.backend_path);
  value("--set", s.sets)->delimiter(',')->allow_extra_args(false);
  value("--probe-seconds", s.probe_seconds)->check(CLI::Range(0.0, 3600.0))->capture_default_str();
  value("--log", s.log)->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}))->capture_default_str();
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
  value("--tuning", s.tuning);
  described(command.add_flag(info("--no-tuned").flag, s.no_tuned, info("--no-tuned").help), info("--no-tuned"));
  described(command.add_flag(info("--validate").flag, s.validate, info("--validate").help), info("--validate"));
}

}  // namespace switchyard::cli
