// SPDX-License-Identifier: Apache-2.0
// What all commands share: how one is run, which files it reads and writes, and how it fails.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/base/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace switchyard::cli {

// Runs `action` when the command was given, unless one of its own commands was. A failure is reported, and decides the
// exit code.
void set_action(CLI::App& command, int& exit_code, std::function<Status()> action);

// An option that names a file to write; "-" is standard output. No command starts if such a file is one that an option
// names as an input, or a second output.
CLI::Option* add_output(CLI::App& command, const std::string& names, std::string& path, const std::string& help);
// An option that names a file to read.
CLI::Option* add_input(CLI::App& command, const std::string& names, std::string& path, const std::string& help);
// The same for an option that exists.
void set_input(CLI::Option& option);
bool names_file(const CLI::Option& option);

// Prints "switchyard: message" to stderr and returns the exit code: 2 for a wrong request, 1 for everything else. With
// `as_json` also error_json to stdout, unless a result was printed there.
int report(const Status& status, bool as_json);
// {"error": {"code", "message", "exit_code"}}
nlohmann::ordered_json error_json(const Status& status, int exit_code);

// Whether a command was asked for JSON.
bool wants_json(const CLI::App& command);

}  // namespace switchyard::cli
