// SPDX-License-Identifier: Apache-2.0
#include "cli/chat_commands.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "cli/chat_set.h"
#include "cli/say.h"

namespace switchyard::cli {
namespace {

struct Command {
  const char* name;
  const char* argument;
  const char* help;
  Status (*run)(ChatState& chat, const std::string& argument);
};
extern const std::array<Command, 9> kCommands;

Status help(ChatState&, const std::string&) {
  for (const Command& c : kCommands) {
    say("  {:<20} {}\n", fmt::format("/{} {}", c.name, c.argument), c.help);
  }
  say("Alt-Enter begins a new line; a paste of several lines is one message.\n"
      "The up arrow shows earlier lines. Ctrl-C stops an answer, Ctrl-D ends the chat.\n"
      "Begin a message with a space if its first word looks like a command.\n");
  return {};
}

Status clear(ChatState& chat, const std::string&) {
  SWY_TRY(chat.conversation.clear());
  say("the conversation is forgotten\n");
  return {};
}

Status system(ChatState& chat, const std::string& text) {
  if (text.empty()) {
    const std::string now = chat.conversation.instructions();
    say("{}\n", now.empty() ? "there are no instructions; /system TEXT sets them" : now);
    return {};
  }
  SWY_TRY(chat.conversation.instruct(text == "none" ? "" : text));
  say("{}\n", text == "none" ? "the instructions are removed" : "the instructions are set");
  return {};
}

Status save(ChatState& chat, const std::string& path) {
  if (path.empty()) return error(Code::usage, "/save needs the name of a file");
  SWY_TRY(chat.conversation.save(path));
  say("saved; /load {} continues it\n", path);
  return {};
}

Status load(ChatState& chat, const std::string& path) {
  if (path.empty()) return error(Code::usage, "/load needs the name of a file");
  SWY_TRY(chat.conversation.load(path));
  say("{} turns, {} tokens\n", chat.conversation.turns(), chat.conversation.used());
  return {};
}

Status set(ChatState& chat, const std::string& argument) {
  const size_t space = std::min(argument.find(' '), argument.size());
  const std::string name = argument.substr(0, space);
  const std::string value = argument.substr(std::min(argument.find_first_not_of(' ', space), argument.size()));
  if (!value.empty()) return set_option(chat.options, chat.speaker.loaded(), name, value);
  bool known = false;
  for (const OptionValue& o : option_values(chat.options)) {
    if (!name.empty() && name != o.name) continue;
    known = true;
    say("  {:<18} {}\n", o.name, o.value);
    if (!name.empty()) say("{}\n", o.help);
  }
  return known ? Status()
               : set_option(chat.options, chat.speaker.loaded(), name, value);  // which names those there are
}

Status stats(ChatState& chat, const std::string& argument) {
  if (argument == "on" || argument == "off") {
    chat.stats = argument == "on";
    return {};
  }
  if (!argument.empty()) return error(Code::usage, "/stats takes on, off or nothing, not '{}'", argument);
  say("{}\n", chat.last ? stats_line(chat, *chat.last) : "there is no answer yet");
  return {};
}

Status end(ChatState& chat, const std::string&) {
  chat.ended = true;
  return {};
}

const std::array<Command, 9> kCommands = {{
    {"help", "", "this list", help},
    {"clear", "", "forget the conversation; the instructions stay", clear},
    {"system", "[TEXT]", "show the instructions, or set them; 'none' removes them", system},
    {"save", "FILE", "save the conversation", save},
    {"load", "FILE", "continue a saved conversation", load},
    {"set", "[NAME VALUE]", "show the options, one of them, or set it: /set temp 0.7", set},
    {"stats", "[on|off]", "tokens and speed of the last answer, or of each answer", stats},
    {"exit", "", "end the chat", end},
    {"quit", "", "the same", end},
}};

std::string name_of(const std::string& line) { return line.substr(1, std::min(line.find(' '), line.size()) - 1); }

}  // namespace

bool is_command(const std::string& line) {
  if (line.size() < 2 || line[0] != '/' || line.find('\n') != std::string::npos) return false;
  const std::string name = name_of(line);
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

Status run_command(ChatState& chat, const std::string& line) {
  const std::string name = name_of(line);
  std::string argument = line.substr(std::min(line.find_first_not_of(' ', 1 + name.size()), line.size()));
  argument.resize(argument.find_last_not_of(' ') + 1);
  for (const Command& c : kCommands) {
    if (name == c.name) return c.run(chat, argument);
  }
  return error(Code::usage, "there is no command /{}; /help lists them", name);
}

std::string stats_line(const ChatState& chat, const Generation& g) {
  const auto seconds = [](uint64_t ns) { return static_cast<double>(ns) / 1e9; };
  const auto rate = [&](size_t n, uint64_t ns) { return static_cast<double>(n) / std::max(seconds(ns), 1e-9); };
  const Finish& o = g.finish;
  const size_t steps = o.ids.empty() ? 0 : o.ids.size() - 1;  // the first token comes with the prompt
  return fmt::format("read {} tokens in {:.2f} s ({:.1f} tok/s), wrote {} in {:.2f} s ({:.1f} tok/s); context {} of {}",
                     g.prompt_tokens, seconds(o.usage.prompt_ns), rate(g.prompt_tokens, o.usage.prompt_ns),
                     o.ids.size(), seconds(o.usage.draw_ns), rate(steps, o.usage.draw_ns), chat.conversation.used(),
                     chat.speaker.model().context());
}

}  // namespace switchyard::cli
