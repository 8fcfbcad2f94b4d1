// SPDX-License-Identifier: Apache-2.0
// switchyard config: every setting, its value, and where that came from.
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/runtime.h"
#include "core/plugin/describe.h"

namespace switchyard::cli {
namespace {

struct ConfigFlags {
  Settings settings;
  bool json = false;
};

std::string joined(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& v : values) text += fmt::format("{}{}", text.empty() ? "" : ",", v);
  return text;
}

// Values of the command line and of the environment never mix: a flag replaces the variable.
const char* option_source(const CLI::Option& option, const char* env_name) {
  if (option.count() == 0) return "default";
  const char* env = *env_name != '\0' ? std::getenv(env_name) : nullptr;
  return env != nullptr && joined(option.results()) == env ? "environment" : "flag";
}

Status config(const CLI::App& command, const ConfigFlags& o) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const SettingInfo& info : setting_table()) {
    const std::string name = std::string(info.flag).substr(0, std::string(info.flag).find(','));
    const CLI::Option* option = command.get_option(name);
    std::string value = option->count() > 0 ? joined(option->results()) : option->get_default_str();
    if (option->get_expected_max() == 0) value = option->count() > 0 && option->as<bool>() ? "on" : "off";
    if (name == "--threads" && value == "0") value = std::to_string(thread_count(o.settings));
    rows.push_back({{"flag", name},
                    {"env", info.env},
                    {"value", value},
                    {"source", option_source(*option, info.env)},
                    {"help", info.help}});
  }
  const char* set_source = option_source(*command.get_option("--set"), "SWITCHYARD_SET");
  const Host host(1);
  SWY_LET(const Registry registry, find_backends(o.settings, host));
  const nlohmann::ordered_json described = describe_json(registry);
  for (const auto& b : described["backends"]) {
    for (const auto& option : b["options"]) {
      const std::string name = b["id"].get<std::string>() + "." + option["name"].get<std::string>();
      std::string value = option["default"].get<std::string>();
      bool set = false;
      for (const std::string& s : o.settings.sets) {
        if (s.starts_with(name + "=")) {
          value = s.substr(name.size() + 1);
          set = true;
        }
      }
      rows.push_back({{"flag", "--set " + name},
                      {"env", "SWITCHYARD_SET"},
                      {"value", value},
                      {"source", set ? set_source : "default"},
                      {"help", option["help"]}});
    }
  }
  if (o.json) {
    print_json(rows, 2);
    return {};
  }
  for (const auto& r : rows) {
    fmt::print("{:<16} {:<26} {:<12} {:<12} {}\n", r["flag"].get<std::string>(), r["env"].get<std::string>(),
               r["value"].get<std::string>().empty() ? "-" : r["value"].get<std::string>(),
               r["source"].get<std::string>(), r["help"].get<std::string>());
  }
  return {};
}

}  // namespace

void add_config(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<ConfigFlags>();
  CLI::App* c = app.add_subcommand("config", "Show every setting, its value, and where it came from");
  c->footer("Example: SWITCHYARD_BACKEND=reference switchyard config");
  c->add_flag("--json", o->json, "print JSON");
  add_settings(*c, o->settings);
  set_action(*c, exit_code, [o, c] { return config(*c, *o); });
}

}  // namespace switchyard::cli
