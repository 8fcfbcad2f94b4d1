// SPDX-License-Identifier: Apache-2.0
// Commands and their options as data, read from the one place where they are declared: what the manual page and the
// shells' completions are made of.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace switchyard::cli {

struct OptionInfo {
  std::vector<std::string> names;  // "-m", "--model"; none of an argument by place
  std::string place;               // its name as such an argument; ""
  std::string value;               // "FLOAT", "FILE"; "" of a flag
  std::string initial;             // its value if it is not given; ""
  std::string environment, help, group;
  std::vector<std::string> choices;
  bool required = false, file = false;
};

struct CommandInfo {
  std::string path;  // "bench compare"; "" of the program
  std::string help, footer;
  std::vector<OptionInfo> options;
  std::vector<CommandInfo> commands;
};

CommandInfo describe_commands(const CLI::App& app);

// The manual page, in man's format.
std::string manual_page(const CommandInfo& program);
// A script that completes commands, options and values. Shell: bash, zsh or fish.
std::string completion_script(const CommandInfo& program, const std::string& shell);

void add_manual(CLI::App& app, int& exit_code);
void add_completion(CLI::App& app, int& exit_code);

}  // namespace switchyard::cli
