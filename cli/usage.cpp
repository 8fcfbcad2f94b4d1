// SPDX-License-Identifier: Apache-2.0
#include "cli/usage.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace switchyard::cli {
namespace {

// How names are compared: "--Top_P=1" is "top-p".
std::string plain(const std::string& typed) {
  std::string name = typed.substr(0, typed.find('='));
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  for (char& c : name) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

// Edits that make one word the other: a letter more, less or different, or two that changed places.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t k = 0; k <= b.size(); ++k) {
      if (i == 0 || k == 0) {
        d[i][k] = i + k;
        continue;
      }
      d[i][k] = std::min({d[i - 1][k] + 1, d[i][k - 1] + 1, d[i - 1][k - 1] + (a[i - 1] == b[k - 1] ? 0 : 1)});
      const bool swapped = i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1];
      if (swapped) d[i][k] = std::min(d[i][k], d[i - 2][k - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

// The known name that was meant, or "": one is the beginning of the other ("temperature", "temp"), one is a word of the
// other ("max-tokens", "tokens"), or few letters differ ("contxt", "context").
std::string nearest(const std::string& typed, const std::vector<std::string>& known) {
  constexpr size_t kShortest = 3;
  const std::string word = plain(typed);
  if (word.size() < 2) return "";
  std::string best;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& name : known) {
    const std::string candidate = plain(name);
    const bool comparable = candidate.size() >= kShortest && word.size() >= kShortest;
    size_t d = distance(word, candidate);
    if (comparable && (word.starts_with(candidate) || candidate.starts_with(word))) d = 1;
    if (comparable && (word.ends_with("-" + candidate) || candidate.ends_with("-" + word))) d = 1;
    if (word == candidate) d = 0;
    if (d >= least) continue;
    least = d;
    best = name;
  }
  return best;
}

const CLI::App& given_command(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name() : full_name(*parent) + " " + command.get_name();
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* o : command.get_options()) {
    for (const std::string& name : o->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : o->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* c : app.get_subcommands({})) {
    if (!c->get_group().empty()) names.push_back(c->get_name());
  }
  return names;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

Status unexpected(const CLI::App& app) {
  const CLI::App& command = given_command(app);
  const std::string full = full_name(command), help = "; see " + full + " --help";
  const std::string name =
      &command == &app ? full : full.substr(full.find(' ') + 1);  // the message begins with the rest
  const std::vector<std::string> words = app.remaining(true);
  const auto option = std::find_if(words.begin(), words.end(), is_option);
  if (option == words.end()) {
    const bool text = command.get_option_no_throw("prompt") != nullptr;
    return error(Code::usage, "{} takes no argument '{}'{}{}", name, words.at(0),
                 text ? "; put a text of several words in quotes" : "", help);
  }
  const std::string typed = option->substr(0, option->find('='));
  const std::string meant = nearest(typed, option_names(command));
  if (!meant.empty()) return error(Code::usage, "{} has no option {}; did you mean {}?", name, typed, meant);
  for (const CLI::Option* o : command.get_options()) {
    if (!o->get_name(true).empty() && o->get_lnames().empty() && o->get_name(true) == plain(typed)) {
      return error(Code::usage, "{} has no option {}; give the {} without it{}", name, typed, plain(typed), help);
    }
  }
  return error(Code::usage, "{} has no option {}{}", name, typed, help);
}

// CLI11 says "Could not convert: --temp = abc" and "--temp: 1 required FLOAT missing".
std::string reason(const CLI::App& command, const CLI::ParseError& e) {
  std::string text = e.what();
  const std::string converting = "Could not convert: ";
  const bool conversion = text.starts_with(converting);
  const std::string rest = conversion ? text.substr(converting.size()) : text;
  const std::string name = rest.substr(0, rest.find_first_of(": "));
  const CLI::Option* option = command.get_option_no_throw(name);
  if (option == nullptr) return text;
  const std::string type = option->get_type_name();
  const char* kind = type.starts_with("FLOAT") ? "a number" : type.starts_with("TEXT") ? "a text" : "a whole number";
  if (e.get_name() == "ArgumentMismatch") return fmt::format("{} needs a value", name);
  if (const size_t at = text.find(" not in range "); at != std::string::npos) {  // "NAME: Value V not in range A to B"
    const size_t value = std::min(text.find("Value ") + 6, at);
    return fmt::format("{} takes {} from {}, not '{}'", name, kind, text.substr(at + 14),
                       text.substr(value, at - value));
  }
  if (option->get_expected_max() == 0) return fmt::format("{} takes no value", name);
  if (!conversion || rest.find(" = ") == std::string::npos) return text;
  return fmt::format("{} takes {}, not '{}'", name, kind, rest.substr(rest.find(" = ") + 3));
}

}  // namespace

Status check_command_name(const CLI::App& app, const std::string& name) {
  const std::vector<std::string> known = command_names(app);
  const auto all = app.get_subcommands({});  // hidden ones, too
  if (std::any_of(all.begin(), all.end(), [&](const CLI::App* c) { return c->get_name() == name; })) return {};
  const std::string meant = nearest(name, known);
  if (!meant.empty()) return error(Code::usage, "there is no command '{}'; did you mean {}?", name, meant);
  return error(Code::usage, "there is no command '{}'; the commands are {}", name, listed(known));
}

Status usage_error(const CLI::App& app, const CLI::ParseError& e) {
  const CLI::App& command = given_command(app);
  const std::vector<std::string> extra = app.remaining(true);
  const bool unknown = std::any_of(extra.begin(), extra.end(), is_option);  // says more than what is missing
  if (unknown || dynamic_cast<const CLI::ExtrasError*>(&e) != nullptr) return unexpected(app);
  if (&command == &app) {
    return error(Code::usage, "name a command: {}; see switchyard --help", listed(command_names(app)));
  }
  return error(Code::usage, "{}; see {} --help", reason(command, e), full_name(command));
}

}  // namespace switchyard::cli
