// SPDX-License-Identifier: Apache-2.0
// What is said of a command line that cannot be understood.
#pragma once

#include "core/base/status.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace switchyard::cli {

// Of an unknown command, before anything is parsed; ok for everything else.
Status check_command_name(const CLI::App& app, const std::string& name);
// Of what CLI11 found. Unknown options and commands come with the nearest known one.
Status usage_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace switchyard::cli
