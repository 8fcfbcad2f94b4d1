// SPDX-License-Identifier: Apache-2.0
// /set of a chat: the options of how text is drawn, by the names and with the checks of the command line's flags.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/generate.h"

namespace switchyard::cli {

// Sets the option whose flag is --name; "none" empties `stop` and what limits the text. Errors: usage, as for the flag,
// which change nothing.
Status set_option(TextOptions& options, const LoadedModel& model, const std::string& name, const std::string& value);
// Every name with its value, and what it is.
struct OptionValue {
  std::string name, value, help;
};
std::vector<OptionValue> option_values(const TextOptions& options);

}  // namespace switchyard::cli
