// SPDX-License-Identifier: Apache-2.0
#include "cli/option_tree.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command.h"
#include "core/base/status.h"

namespace switchyard::cli {
namespace {

// "TEXT:{debug,info}" has choices, "UINT:UINT in [0 - 20]" has not.
std::vector<std::string> choices_of(const std::string& type) {
  std::vector<std::string> all;
  const size_t begin = type.find(":{"), end = type.rfind('}');
  if (begin == std::string::npos || end == std::string::npos) return all;
  const std::string list = type.substr(begin + 2, end - begin - 2);
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    all.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return all;
}

OptionInfo describe_option(const CLI::Option& o) {
  OptionInfo info;
  for (const std::string& name : o.get_snames()) info.names.push_back("-" + name);
  for (const std::string& name : o.get_lnames()) info.names.push_back("--" + name);
  info.place = o.get_name(true);
  if (info.place.starts_with("-")) info.place.clear();
  const std::string type = o.get_type_name();
  if (o.get_expected_max() != 0) {
    info.value = type.substr(0, type.find(':'));
    info.initial = o.get_default_str();
  }
  info.choices = choices_of(type);
  info.file = names_file(o);
  info.environment = o.get_envname();
  info.help = o.get_description();
  info.group = o.get_group();
  info.required = o.get_required();
  return info;
}

CommandInfo describe_command(const CLI::App& app, const std::string& path) {
  CommandInfo c;
  c.path = path;
  c.help = app.get_description();
  c.footer = app.get_footer();
  for (const CLI::Option* o : app.get_options()) {
    if (!o->get_group().empty()) c.options.push_back(describe_option(*o));
  }
  for (const CLI::App* s : app.get_subcommands({})) {
    if (s->get_group().empty()) continue;
    c.commands.push_back(describe_command(*s, path.empty() ? s->get_name() : path + " " + s->get_name()));
  }
  return c;
}

}  // namespace

CommandInfo describe_commands(const CLI::App& app) { return describe_command(app, ""); }

void add_manual(CLI::App& app, int& exit_code) {
  CLI::App* c = app.add_subcommand("manual", "Print the manual page of this program, in man's format");
  c->footer("Example: switchyard manual | man -l -");
  set_action(*c, exit_code, [&app] {
    fmt::print("{}", manual_page(describe_commands(app)));
    return Status();
  });
}

void add_completion(CLI::App& app, int& exit_code) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* c = app.add_subcommand("completion", "Print a script with which a shell completes commands and options");
  c->footer(
      "Example: switchyard completion bash > ~/.local/share/bash-completion/completions/switchyard\n"
      "         switchyard completion fish > ~/.config/fish/completions/switchyard.fish\n"
      "For zsh the script is named _switchyard, in a folder of $fpath. `./dev install` puts all three in place.");
  c->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  set_action(*c, exit_code, [&app, shell] {
    fmt::print("{}", completion_script(describe_commands(app), *shell));
    return Status();
  });
}

}  // namespace switchyard::cli
