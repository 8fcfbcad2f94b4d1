// SPDX-License-Identifier: Apache-2.0
// switchyard chat: a conversation, kept in one session.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/chat_commands.h"
#include "cli/chat_history.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/line_editor.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/terminal_input.h"

namespace switchyard::cli {
namespace {

constexpr size_t kLongestMessage = size_t{64} << 20;  // bytes

struct ChatFlags {
  Settings settings;
  TextFlags text;
  std::string system, session;
  bool lines = false, stats = false, json = false, no_history = false;
};

void note(const std::string& text) {
  std::fflush(stdout);
  say("[{}]\n", text);
}

std::string ending(const Generation& g, const TextOptions& options) {
  if (g.stopped == "interrupt") return "stopped";
  if (g.stopped == "context")
    return "the context is full, so the answer is cut; the next message drops the oldest turns";
  if (g.stopped == "length") return fmt::format("cut after {} tokens", options.max_tokens);
  return {};
}

class Chat {
 public:
  Chat(ChatState state, const ChatFlags& flags) : state_(std::move(state)), flags_(flags) {}

  ChatState& state() { return state_; }

  Status answer(const std::string& message) {
    bool begun = false;
    auto made = state_.conversation.ask(message, state_.options, [&](const Event& piece) {
      if (flags_.json) return;
      fmt::print("{}", for_output(piece.text));
      std::fflush(stdout);
      begun = true;
    });
    if (!made.ok() && begun) fmt::print("\n");
    SWY_LET(Generation g, std::move(made));
    if (flags_.json) {
      nlohmann::ordered_json out = {{"text", g.finish.text}, {"prompt_tokens", g.prompt_tokens}, {"ids", g.finish.ids}};
      out.update(summary_json(g));
      out["context_used"] = state_.conversation.used();
      print_json(out);
    } else {
      fmt::print("\n");
    }
    std::fflush(stdout);
    if (const std::string why = ending(g, state_.options); !why.empty()) note(why);
    if (state_.stats) note(stats_line(state_, g));
    state_.last = std::move(g);
    return {};
  }

  // What a person types: lines that begin with a slash are commands, and no failure ends the chat.
  void converse() {
    ChatHistory history(flags_.no_history ? "" : chat_history_path());
    const auto editor = LineEditor::create(history.load());
    say("seed {}; /help lists commands, Ctrl-D ends\n", *state_.options.sampling.seed);
    std::string line;
    while (!state_.ended) {
      interrupted.store(false);  // Ctrl-C has stopped the answer, or the line
      if (told_to_end()) break;
      const LineEditor::Got got = read(editor.get(), line);
      if (got == LineEditor::Got::end) break;
      if (got == LineEditor::Got::interrupt) continue;
      line.resize(line.find_last_not_of("\n \t") + 1);
      if (line.empty()) continue;
      if (editor != nullptr) editor->remember(line);
      history.add(line);
      const Status done = is_command(line) ? run_command(state_, line) : answer(line);
      if (!done.ok()) fail(done);
    }
  }

  // What is piped in: one message, or with --lines one a line. None of it is a command. Returns the first failure's
  // exit code.
  int take_input() {
    int code = 0;
    const auto say_one = [&](const std::string& text) {
      const Status done = answer(text);
      const int failed = done.ok() ? 0 : fail(done);
      if (code == 0) code = failed;
    };
    std::string message, line;
    int got = 0;
    while (!interrupted.load() && (got = input_.line(line, kLongestMessage)) == 0) {
      if (flags_.lines && !line.empty()) say_one(line);
      if (!flags_.lines) message += line + "\n";
      if (message.size() > kLongestMessage) got = TerminalInput::too_long;
      if (got != 0) break;
    }
    if (got == TerminalInput::too_long) {
      return fail(error(Code::usage, "a message has more than {} MiB", kLongestMessage >> 20));
    }
    if (flags_.lines || got == TerminalInput::interrupt) return code;
    message.resize(message.find_last_not_of('\n') + 1);
    if (message.empty()) return fail(error(Code::usage, "standard input is empty; there is nothing to answer"));
    say_one(message);
    return code;
  }

 private:
  // Of one message: with --json it has an object of its own, as an answer has.
  int fail(const Status& status) {
    const int code = report(status);
    if (flags_.json) print_json(error_json(status, code));
    return code;
  }

  LineEditor::Got read(LineEditor* editor, std::string& line) {
    if (editor != nullptr) return editor->read("> ", line);
    say("> ");
    const int got = input_.line(line, kLongestMessage);  // a longer one ends the chat
    if (got != 0) say("\n");
    if (got == TerminalInput::interrupt) return LineEditor::Got::interrupt;
    return got == 0 ? LineEditor::Got::line : LineEditor::Got::end;
  }

  ChatState state_;
  const ChatFlags& flags_;
  TerminalInput input_;
};

Result<int> chat(const ChatFlags& o) {
  use_utf8_locale();
  SWY_LET(TextOptions options, o.text.resolved());
  SWY_LET(const auto speaker, Speaker::load(o.settings, options));
  const Program& program = *speaker->loaded().program;
  o.text.recommended_by(program, options.sampling);
  if (program.chat_template.empty()) {
    return error(Code::unsupported, "this model has no chat template; use switchyard run");
  }
  SWY_LET(ChatTemplate parsed, ChatTemplate::parse(program.chat_template));
  // One seed for the conversation, so that it can be repeated.
  SWY_LET(const Sampler sampler, Sampler::create(options.sampling, speaker->model().vocab()));
  options.sampling.seed = sampler.seed();
  Chat chat({*speaker, Conversation(*speaker, std::move(parsed), note), options, o.stats}, o);
  Conversation& conversation = chat.state().conversation;
  if (!o.session.empty()) {
    SWY_TRY(Os::real().create(o.session).status());  // before anything is said
    if (Os::real().exists(o.session)) SWY_TRY(conversation.load(o.session));
  }
  if (!o.system.empty()) SWY_TRY(conversation.instruct(o.system).in("--system"));
  int code = 0;
  if (::isatty(STDIN_FILENO) == 1) {
    chat.converse();
  } else {
    code = chat.take_input();
  }
  if (!o.session.empty()) SWY_TRY(conversation.save(o.session));
  return code;
}

}  // namespace

void add_chat(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<ChatFlags>();
  CLI::App* c = app.add_subcommand("chat", "Talk with a model; it remembers the conversation");
  c->footer(
      "At a terminal, /help lists the commands. Piped input is one message, and never a command:\n"
      "git diff | switchyard chat --system \"Review this\"");
  c->add_option("--system", o->system, "instructions before the first message");
  add_input(*c, "--session", o->session,
            "file of a conversation to continue; it is created if missing, and saved when the chat ends");
  c->add_flag("--lines", o->lines, "each line of piped input is a message");
  c->add_flag("--stats", o->stats, "after each answer, print its tokens and their speed");
  c->add_flag("--json", o->json, "print one JSON object for each answer instead of the text");
  c->add_flag("--no-history", o->no_history,
              "do not keep the lines typed in this chat, and do not show those of earlier ones")
      ->envname("SWITCHYARD_NO_HISTORY");
  add_text_flags(*c, o->text, 512);
  add_speculate(*c, o->settings);
  add_settings(*c, o->settings);
  c->callback([o, &exit_code] {
    const Result<int> ended = chat(*o);
    exit_code = ended.ok() ? *ended : report(ended.status(), o->json);
  });
}

}  // namespace switchyard::cli
