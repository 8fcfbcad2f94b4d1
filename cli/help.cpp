// SPDX-License-Identifier: Apache-2.0
#include "cli/help.h"

#include <CLI/CLI.hpp>
#include <string>

namespace switchyard::cli {
namespace {

constexpr size_t kColumns = 120;

// CLI11 appends what a value is checked for to its type: "UINT:UINT in [0 - 20]", "TEXT:{debug,info}". Returns the
// type; `limits` gets the rest, in brackets and without the type's name.
std::string split_type(const std::string& type, std::string& limits) {
  const std::string name = type.substr(0, type.find(':'));
  limits = type.substr(std::min(name.size() + 1, type.size()));
  if (limits.starts_with(name + " in ")) limits.erase(0, name.size() + 4);
  if (!limits.empty() && limits[0] != '[' && limits[0] != '{') limits = "[" + limits + "]";
  return name;
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string made = CLI::Formatter::make_option_opts(option), type = option->get_type_name();
    if (option->get_type_size() == 0 || type.empty()) return made;
    const std::string initial = option->get_default_str(), value = initial.empty() ? "" : "=" + initial;
    std::string limits;
    std::string shown = " " + split_type(type, limits);
    if (initial != "[]") shown += value;  // a list that is empty by default
    if (!limits.empty()) shown += " " + limits;
    return shown + made.substr(std::min(1 + type.size() + value.size(), made.size()));
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    const size_t width = kColumns - get_column_width();
    std::string text = option->get_description();
    for (size_t begin = 0; text.size() - begin > width;) {
      const size_t space = text.rfind(' ', begin + width);
      if (space == std::string::npos || space <= begin) break;
      text[space] = '\n';
      begin = space + 1;
    }
    return text;
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

}  // namespace switchyard::cli
