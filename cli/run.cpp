// SPDX-License-Identifier: Apache-2.0
// switchyard run: text from a prompt.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/generate.h"
#include "cli/output.h"
#include "cli/run_trace.h"
#include "cli/text_input.h"
#include "core/base/printable.h"
#include "core/generate/session_file.h"

namespace switchyard::cli {
namespace {

struct RunFlags {
  Settings settings;
  TextFlags text;
  std::string prompt, file, trace, session;
  uint32_t logprobs = 0;
  bool json = false;
};

Result<std::string> read_prompt(const RunFlags& o) {
  if (!o.prompt.empty() && !o.file.empty()) return error(Code::usage, "give a prompt or --file, not both");
  if (!o.file.empty()) return read_text(o.file);
  if (!o.prompt.empty()) return o.prompt;
  const bool goes_on = !o.session.empty() && Os::real().exists(o.session);  // a session needs no more text
  if (::isatty(STDIN_FILENO) == 1 && goes_on) return std::string();
  if (::isatty(STDIN_FILENO) == 1) {
    return error(Code::usage, "there is no prompt; give one after run, name a file with --file, or pipe text in");
  }
  SWY_LET(std::string text, read_standard_input());
  if (text.empty() && !goes_on) return error(Code::usage, "the prompt is empty");
  return text;
}

using json = nlohmann::ordered_json;

json logprobs_json(const Tokenizer& tokenizer, const Event& piece) {
  json top = json::array();
  for (const auto& [id, logprob] : piece.top) {
    top.push_back({{"id", id}, {"text", tokenizer.piece(id)}, {"logprob", logprob}});
  }
  return {{"id", piece.id}, {"text", tokenizer.piece(piece.id)}, {"logprob", piece.logprob}, {"top", top}};
}

void print_logprobs(const json& token) {
  const auto one = [](const json& t) {
    return fmt::format("{} {:.4f}", t["text"].dump(-1, ' ', false, json::error_handler_t::replace),
                       t["logprob"].get<double>());
  };
  std::string line = one(token) + " |";
  for (const json& t : token["top"]) line += "  " + one(t);
  say("{}\n", printable_json(line));
}

// Goes on from a session's file, or makes sure that there can be one.
Status open_session(const std::string& path, TextThread& thread) {
  if (Os::real().exists(path)) SWY_TRY(load_session(Os::real(), path, SessionFile::Kind::text, thread).status());
  return Os::real().create(path).status();  // which deletes what it created: it is written when the text is known
}

Status run(const RunFlags& o) {
  SWY_LET(TextOptions options, o.text.resolved());
  options.sampling.top_logprobs = o.logprobs;
  SWY_LET(const std::string prompt, read_prompt(o));
  SWY_LET(const auto speaker, Speaker::load(o.settings, options));
  o.text.recommended_by(*speaker->loaded().program, options.sampling);
  const Tokenizer& tokenizer = speaker->tokenizer();
  TextThread& thread = speaker->thread();
  if (!o.session.empty()) SWY_TRY(speaker->on_loop([&] { return open_session(o.session, thread); }));
  SWY_LET(const TextThread::Reading reading, thread.read(thread.text() + prompt));
  const std::vector<int32_t>& ids = reading.fresh;
  if (ids.empty()) return error(Code::usage, "the prompt has no tokens");
  bool begun = o.json;  // the prompt is shown once the model has taken it
  json tokens = json::array();
  std::unique_ptr<RunTrace> trace;
  SWY_TRY(speaker->on_loop([&]() -> Status {
    SWY_LET(trace, RunTrace::start(speaker->loaded(), o.settings, o.trace));
    return {};
  }));
  const Result<Generation> ran = generate(*speaker, reading, options, [&](const Event& piece) {
    if (o.logprobs > 0 && piece.id >= 0) tokens.push_back(logprobs_json(tokenizer, piece));
    if (o.json) return;
    fmt::print("{}{}", begun ? "" : prompt, for_output(piece.text));
    begun = true;
    std::fflush(stdout);
  });
  Status ended = ran.status();
  if (!o.json && (ran.ok() || begun)) {  // an error is not printed after text
    fmt::print("\n");
    std::fflush(stdout);
  }
  if (ran.ok() && !o.session.empty()) {
    ended = speaker->on_loop([&] { return save_session(Os::real(), o.session, SessionFile::Kind::text, thread); });
  }
  Status traced = speaker->on_loop([&] { return RunTrace::finish(std::move(trace), ended); });
  if (!ran.ok()) return traced;
  const Generation& g = *ran;
  if (o.json) {
    json out = {{"prompt_ids", ids}, {"ids", g.finish.ids}, {"text", g.finish.text}};
    out.update(summary_json(g));
    out["devices"] = speaker->model().device_names();
    out["load_seconds"] = speaker->load_seconds();
    if (o.logprobs > 0) out["logprobs"] = tokens;
    print_json(out);
    return traced;
  }
  for (const json& token : tokens) print_logprobs(token);
  say("{}", summary(*speaker, g));
  return traced;
}

}  // namespace

void add_run(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<RunFlags>();
  CLI::App* c = app.add_subcommand("run", "Continue a prompt");
  c->footer(
      "Example: switchyard run -n 200 --temp 0.7 \"The ship had been at sea\"\n"
      "The text goes to standard output; the seed and the times go to standard error.");
  c->add_option("prompt", o->prompt, "the text to continue; without it, read from standard input");
  add_input(*c, "--file,-f", o->file, "read the prompt from this file; - for standard input");
  add_input(*c, "--session", o->session,
            "file of a session to continue; it is created if missing, and saved at the end");
  c->add_option("--logprobs", o->logprobs,
                "print each token's log-probability, and this many of the most likely tokens")
      ->check(CLI::Range(0u, kTopLogprobs));
  c->add_flag("--json", o->json, "print one JSON object instead of the text");
  add_trace(*c, o->trace);
  add_text_flags(*c, o->text, 128);
  add_speculate(*c, o->settings);
  add_settings(*c, o->settings);
  set_action(*c, exit_code, [o] { return run(*o); });
}

}  // namespace switchyard::cli
