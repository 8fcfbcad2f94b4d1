// SPDX-License-Identifier: Apache-2.0
// Completions for shells, from the commands and options as they are declared.
#include <fmt/format.h>

#include <algorithm>

#include "cli/option_tree.h"

namespace switchyard::cli {
namespace {

std::vector<const CommandInfo*> all_commands(const CommandInfo& top) {
  std::vector<const CommandInfo*> all = {&top};
  for (const CommandInfo& c : top.commands) {
    for (const CommandInfo* s : all_commands(c)) all.push_back(s);
  }
  return all;
}

std::string last_word(const std::string& path) { return path.substr(path.rfind(' ') + 1); }

// In single quotes for a shell; `[`, `]` and `:` mean something to zsh.
std::string quoted(const std::string& text, const char* quote_in_quotes = "'\\''", const char* special = "") {
  std::string out = "'";
  for (const char c : text) {
    if (std::string_view(special).find(c) != std::string_view::npos) out += '\\';
    out += c == '\'' ? quote_in_quotes : std::string(1, c == '\n' ? ' ' : c);
  }
  return out + "'";
}

std::string words_of(const CommandInfo& c) {
  std::string out;
  for (const CommandInfo& s : c.commands) out += last_word(s.path) + " ";
  for (const OptionInfo& o : c.options) out += fmt::format("{}{}", fmt::join(o.names, " "), o.names.empty() ? "" : " ");
  return out.substr(0, out.size() - (out.empty() ? 0 : 1));
}

// What may follow a command at a place: the choices of its arguments.
std::string places_of(const CommandInfo& c) {
  std::string out;
  for (const OptionInfo& o : c.options) {
    if (o.names.empty()) out += fmt::format(" {}", fmt::join(o.choices, " "));
  }
  return out;
}

std::string bash(const CommandInfo& program) {
  std::string walk, values, words;
  for (const CommandInfo* c : all_commands(program)) {
    if (!c->path.empty()) {
      const size_t space = c->path.rfind(' ');
      walk += fmt::format("      '{}:{}') at='{}' ;;\n", space == std::string::npos ? "" : c->path.substr(0, space),
                          last_word(c->path), c->path);
    }
    for (const OptionInfo& o : c->options) {
      if (o.value.empty() || o.names.empty()) continue;
      std::string patterns;
      for (const std::string& name : o.names) {
        patterns += fmt::format("{}'{}:{}'", patterns.empty() ? "" : " | ", c->path, name);
      }
      const std::string reply =
          o.choices.empty() ? ""
                            : fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$now\")); ", fmt::join(o.choices, " "));
      values += fmt::format("    {}) {}return ;;\n", patterns, reply);
    }
    words += fmt::format("    '{}') words='{}{}' ;;\n", c->path, words_of(*c), places_of(*c));
  }
  return "# bash completion for switchyard\n"
         "_switchyard() {\n"
         "  local now=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} at= words= i\n"
         "  for ((i = 1; i < COMP_CWORD; i++)); do\n    case \"$at:${COMP_WORDS[i]}\" in\n" +
         walk +
         "    esac\n  done\n  COMPREPLY=()\n"
         "  case \"$at:$before\" in  # an empty reply means files\n" +
         values + "  esac\n  case \"$at\" in\n" + words +
         "  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$now\"))\n}\n"
         "complete -o default -F _switchyard switchyard\n";
}

// `place` counts the arguments without a name.
std::string zsh_option(const OptionInfo& o, int& place) {
  std::string out;
  const std::string action = o.file               ? ":file:_files"
                             : !o.choices.empty() ? fmt::format(":value:({})", fmt::join(o.choices, " "))
                             : !o.value.empty()   ? ":value:"
                                                  : "";
  if (o.names.empty()) {
    return fmt::format("    '{}:{}{}' \\\n", ++place, o.place, o.choices.empty() ? ":_files" : action.substr(6));
  }
  for (const std::string& name : o.names) {
    out += fmt::format("    '*'{}{}{} \\\n", name,
                       quoted("[" + o.help.substr(0, o.help.find('\n')) + "]", "'\\''", ":"), quoted(action));
  }
  return out;
}

std::string zsh_function(const CommandInfo& c) {
  std::string name = "_switchyard";
  for (const char ch : c.path.empty() ? "" : " " + c.path) name += ch == ' ' ? '_' : ch;
  std::string out = name + "() {\n  local state line curcontext=$curcontext\n";
  std::string options;
  int place = 0;
  for (const OptionInfo& o : c.options) {
    if (c.commands.empty() || !o.names.empty()) options += zsh_option(o, place);
  }
  if (c.commands.empty()) return out + "  _arguments -s \\\n" + options + "    && return\n}\n";
  std::string list, cases;
  for (const CommandInfo& s : c.commands) {
    list += fmt::format("      {}\n", quoted(last_word(s.path) + ":" + s.help.substr(0, s.help.find('\n'))));
    cases += fmt::format("        {}) {}_{} ;;\n", last_word(s.path), name, last_word(s.path));
  }
  return out + "  _arguments -C \\\n" + options + "    '1: :->command' '*:: :->rest' && return\n" +
         "  case $state in\n    command)\n      local -a commands=(\n" + list +
         "      )\n      _describe command commands\n" + (c.path.empty() ? "" : "      _files\n") +
         "      ;;\n    rest)\n      case $line[1] in\n" + cases + "      esac\n      ;;\n  esac\n}\n";
}

std::string zsh(const CommandInfo& program) {
  std::string out = "#compdef switchyard\n";
  for (const CommandInfo* c : all_commands(program)) out += zsh_function(*c);
  return out + "_switchyard \"$@\"\n";
}

std::string fish(const CommandInfo& program) {
  std::string out =
      "# fish completion for switchyard\n"
      "function __switchyard_at\n"
      "  set -l words (string match -v -r '^-' -- (commandline -opc)[2..])\n"
      "  set -l n (count $argv)\n"
      "  test \"$words[1..$n]\" = \"$argv\"\n"
      "end\n"
      "function __switchyard_none\n"
      "  test -z \"$(string match -v -r '^-' -- (commandline -opc)[2..])\"\n"
      "end\n";
  for (const CommandInfo* c : all_commands(program)) {
    const std::string condition = c->path.empty() ? "__switchyard_none" : "__switchyard_at " + c->path;
    const std::string begin = fmt::format("complete -c switchyard -n '{}'", condition);
    for (const CommandInfo& s : c->commands) {
      out += fmt::format("{} -f -a {} -d {}\n", begin, last_word(s.path),
                         quoted(s.help.substr(0, s.help.find('\n')), "\\'"));
    }
    for (const OptionInfo& o : c->options) {
      std::string line = begin;
      for (const std::string& name : o.names) {
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (o.names.empty() && o.choices.empty()) continue;
      if (!o.choices.empty()) line += fmt::format(" -x -a '{}'", fmt::join(o.choices, " "));
      if (o.choices.empty() && !o.value.empty()) line += o.file ? " -r -F" : " -x";
      out += line + " -d " + quoted(o.help.substr(0, o.help.find('\n')), "\\'") + "\n";
    }
  }
  return out;
}

}  // namespace

std::string completion_script(const CommandInfo& program, const std::string& shell) {
  return shell == "bash" ? bash(program) : shell == "zsh" ? zsh(program) : fish(program);
}

}  // namespace switchyard::cli
