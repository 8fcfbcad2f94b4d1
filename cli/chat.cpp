// SPDX-License-Identifier: Apache-2.0
// switchyard chat: a conversation, kept in one session.
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/generate.h"
#include "core/text/chat_template.h"
#include "core/text/utf8.h"

namespace switchyard::cli {
namespace {

struct ChatFlags {
  Settings settings;
  TextFlags text;
  std::string system;
};

class Chat {
 public:
  Chat(const Runtime& r, Session& session, TextOptions options, ChatTemplate chat_template)
      : r_(r), session_(session), options_(std::move(options)), template_(std::move(chat_template)) {}

  // Errors: usage, when the text is not UTF-8.
  Status say(const char* role, const std::string& text) {
    SWY_TRY(check_utf8(text));
    messages_.push_back({{"role", role}, {"content", text}});
    return {};
  }

  // The answer to a line of the user's. A line that cannot be answered is forgotten.
  Status ask(const std::string& line) {
    SWY_TRY(say("user", line));
    Status answered = answer();
    if (!answered.ok()) messages_.erase(messages_.size() - 1);
    return answered;
  }

 private:
  Status answer() {
    SWY_LET(const std::string text, template_.render(messages_, true));
    SWY_LET(const std::vector<int32_t> ids, r_.tokenizer->encode(text));
    // The session's tokens can be kept if the conversation begins with them; a state cannot be shortened.
    const bool continues = seen_.size() < ids.size() && std::equal(seen_.begin(), seen_.end(), ids.begin());
    if (!continues) {
      session_.reset();
      seen_.clear();
    }
    const std::vector<int32_t> fresh(ids.begin() + static_cast<ptrdiff_t>(seen_.size()), ids.end());
    interrupted.store(false);
    auto made = generate(r_, session_, options_, fresh, seen_, [](const TextPiece& piece) {
      fmt::print("{}", piece.text);
      std::fflush(stdout);
    });
    if (!made.ok()) {  // how much of it the session has seen does not matter any more
      session_.reset();
      seen_.clear();
    }
    SWY_LET(const Generation g, std::move(made));
    interrupted.store(false);
    fmt::print("\n");
    seen_ = ids;
    seen_.insert(seen_.end(), g.outcome.ids.begin(), g.outcome.ids.end());
    seen_.resize(session_.position());  // the last token was drawn, not fed
    return say("assistant", g.text);
  }

  const Runtime& r_;
  Session& session_;
  TextOptions options_;
  ChatTemplate template_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  std::vector<int32_t> seen_;
};

Status chat(const ChatFlags& o) {
  SWY_LET(TextOptions options, o.text.resolved());
  SWY_LET(Runtime r, load_for_text(o.settings, options));
  SWY_TRY(r.text().status());
  if (r.program->chat_template.empty()) {
    return error(Code::unsupported, "this model has no chat template; use switchyard run");
  }
  SWY_LET(ChatTemplate parsed, ChatTemplate::parse(r.program->chat_template));
  SWY_LET(auto session, r.model->session());
  // One seed for the conversation, so that it can be repeated.
  SWY_LET(const Sampler sampler, Sampler::create(options.sampling, r.model->vocab()));
  options.sampling.seed = sampler.seed();
  Chat chat(r, *session, options, std::move(parsed));
  if (!o.system.empty()) SWY_TRY(chat.say("system", o.system).in("--system"));
  fmt::print(stderr, "seed {}; an empty line or Ctrl-D ends, Ctrl-C stops an answer\n", sampler.seed());
  for (std::string line; fmt::print(stderr, "> "), std::getline(std::cin, line) && !line.empty();) {
    if (Status s = chat.ask(line); !s.ok()) {
      if (s.code() != Code::usage) return s;
      report(s);  // too long, not UTF-8: the conversation goes on without it
    }
  }
  return {};
}

}  // namespace

void add_chat(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<ChatFlags>();
  CLI::App* c = app.add_subcommand("chat", "Talk with a model; it remembers the conversation");
  c->add_option("--system", o->system, "instructions before the first message");
  add_text_flags(*c, o->text, 512);
  add_settings(*c, o->settings);
  c->callback([o, &exit_code] {
    if (const Status s = chat(*o); !s.ok()) exit_code = report(s);
  });
}

}  // namespace switchyard::cli
