// switchyard run: text from a prompt.
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>

#include "cli/commands.h"
#include "cli/generate.h"

namespace switchyard::cli {
namespace {

constexpr uint64_t kMaxPromptBytes = uint64_t{64} << 20;

struct Options {
  Settings settings;
  SamplingFlags sampling;
  std::string prompt, file;
  uint32_t tokens = 128;
  bool json = false;
};

Result<std::string> read_prompt(const Options& o) {
  if (!o.prompt.empty() && !o.file.empty()) return error(Code::usage, "give a prompt or --file, not both");
  if (!o.file.empty()) return Os::real().read(o.file, kMaxPromptBytes);
  if (!o.prompt.empty()) return o.prompt;
  if (::isatty(STDIN_FILENO) == 1) {
    return error(Code::usage, "there is no prompt; write one after run, name a file with --file, or pipe a text in");
  }
  std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  if (text.empty()) return error(Code::usage, "the prompt is empty");
  return text;
}

Status run(const Options& o) {
  SWY_LET(const std::string prompt, read_prompt(o));
  SWY_LET(Runtime r, load_runtime(o.settings));
  SWY_LET(const Tokenizer* tokenizer, r.text());
  SWY_LET(const std::vector<int32_t> ids, tokenizer->encode(prompt));
  if (ids.empty()) return error(Code::usage, "the prompt has no tokens");
  SWY_LET(Sampler sampler, Sampler::create(o.sampling.resolved(), r.model->vocab()));
  SWY_LET(auto session, r.model->session());
  bool begun = o.json;  // the prompt is shown once the model has taken it
  SWY_LET(const Generation g,
          generate(r, *session, sampler, ids, o.tokens, o.sampling.ignore_eos, [&](const std::string& text) {
            if (o.json) return;
            fmt::print("{}{}", begun ? "" : prompt, text);
            begun = true;
            std::fflush(stdout);
          }));
  if (o.json) {
    const nlohmann::ordered_json out = {{"prompt_ids", ids},
                                        {"ids", g.ids},
                                        {"text", g.text},
                                        {"stopped", g.stopped},
                                        {"seed", sampler.seed()},
                                        {"devices", r.model->device_names()},
                                        {"load_seconds", r.load_seconds},
                                        {"prefill_seconds", g.prefill_seconds},
                                        {"decode_seconds", g.decode_seconds}};
    print_json(out);
    return {};
  }
  fmt::print("\n");
  std::fflush(stdout);
  fmt::print(stderr, "{}", summary(r, g, sampler.seed()));
  return {};
}

}  // namespace

void add_run(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("run", "Continue a prompt");
  c->footer(
      "Example: switchyard run -n 200 --temp 0.7 \"The ship had been at sea\"\n"
      "The text goes to standard output; the seed and the times go to standard error.");
  c->add_option("prompt", o->prompt, "the text to continue; without it, standard input");
  c->add_option("--file,-f", o->file, "read the prompt from a file");
  c->add_option("--tokens,-n", o->tokens, "tokens to draw at most")
      ->check(CLI::Range(1u, 1u << 24))
      ->capture_default_str();
  c->add_flag("--json", o->json, "print one JSON object instead of the text");
  add_sampling(*c, o->sampling);
  add_settings(*c, o->settings);
  c->callback([o, &exit_code] {
    if (const Status s = run(*o); !s.ok()) exit_code = report(s);
  });
}

}  // namespace switchyard::cli
