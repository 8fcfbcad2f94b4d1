// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "cli/signals.h"
#include "core/base/status.h"

namespace switchyard::cli {
namespace {

constexpr const char *kInput = "FILE", *kOutput = "OUTPUT";  // as --help shows them

struct NamedFile {
  const CLI::Option* option;
  std::string path;
};

std::vector<NamedFile> files_of(const CLI::App& command, const char* type) {
  std::vector<NamedFile> files;
  for (const CLI::Option* o : command.get_options()) {
    if (o->get_type_name() != type) continue;
    for (const std::string& path : o->reduced_results()) files.push_back({o, path});
  }
  return files;
}

// One regular file, by whatever names.
bool same_file(const std::string& a, const std::string& b) {
  struct stat at_a {
  }, at_b{};
  if (::stat(a.c_str(), &at_a) != 0 || ::stat(b.c_str(), &at_b) != 0) return a == b && !a.empty();
  return S_ISREG(at_a.st_mode) && at_a.st_dev == at_b.st_dev && at_a.st_ino == at_b.st_ino;
}

Status check_outputs(const CLI::App& command) {
  const auto outputs = files_of(command, kOutput), inputs = files_of(command, kInput);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const NamedFile& out = outputs[i];
    for (const NamedFile& in : inputs) {
      if (!same_file(out.path, in.path)) continue;
      return error(Code::usage, "{} {}: the command reads this file, too; name another file to write",
                   out.option->get_name(), out.path);
    }
    for (size_t k = 0; k < i; ++k) {
      if (!same_file(out.path, outputs[k].path)) continue;
      return error(Code::usage, "{} and {} both write {}; name two files", outputs[k].option->get_name(),
                   out.option->get_name(), out.path);
    }
  }
  return {};
}

const char* code_name(Code code) {
  constexpr const char* kNames[] = {
      "ok",          "usage", "invalid_data", "not_found", "unsupported", "out_of_host_memory", "out_of_device_memory",
      "device_lost", "io",    "cancelled",    "internal"};
  return kNames[static_cast<size_t>(code)];
}

}  // namespace

void set_action(CLI::App& command, int& exit_code, std::function<Status()> action) {
  command.callback([&command, &exit_code, action = std::move(action)] {
    if (!command.get_subcommands().empty()) return;
    Status done = check_outputs(command);
    if (done.ok()) done = action();
    if (!done.ok()) exit_code = report(done, wants_json(command));
  });
}

CLI::Option* add_output(CLI::App& command, const std::string& names, std::string& path, const std::string& help) {
  return command.add_option(names, path, help)
      ->type_name(kOutput)
      ->transform([](const std::string& name) { return name == "-" ? std::string("/dev/stdout") : name; }, "");
}

CLI::Option* add_input(CLI::App& command, const std::string& names, std::string& path, const std::string& help) {
  CLI::Option* option = command.add_option(names, path, help);
  set_input(*option);
  return option;
}

void set_input(CLI::Option& option) { option.type_name(kInput); }

bool names_file(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type == kInput || type == kOutput;
}

bool wants_json(const CLI::App& command) {
  const CLI::Option* flag = command.get_option_no_throw("--json");
  const CLI::Option* format = command.get_option_no_throw("--format");
  return (flag != nullptr && flag->count() > 0) ||
         (format != nullptr && format->count() > 0 && format->as<std::string>() == "json");
}

int report(const Status& status, bool as_json) {
  const int exit_code = report(status);
  if (as_json && !printed_document()) print_json(error_json(status, exit_code));
  return exit_code;
}

nlohmann::ordered_json error_json(const Status& status, int exit_code) {
  return {{"error",
           {{"code", code_name(status.code())},
            {"message", status.message()},
            {"exit_code", exit_code_after_signals(exit_code)}}}};
}

}  // namespace switchyard::cli
