// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_serve.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/load/driver.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/text_input.h"
#include "core/base/json.h"
#include "core/base/printable.h"
#include "core/base/status.h"

namespace switchyard::cli {
namespace {

constexpr const char* kGroup = "Load on a server (with --serve)";
constexpr uint64_t kMostExtra = 1u << 20;  // bytes

// The options that mean something with --serve.
Status check_options(const CLI::App& command) {
  for (const CLI::Option* o : command.get_options()) {
    const std::string name = o->get_name();
    const bool known = o->get_group() == kGroup || name == "--temp" || name == "--json" || name == "--output" ||
                       name == "--help" || name == "--log";
    const bool from_environment = !o->get_envname().empty() && std::getenv(o->get_envname().c_str()) != nullptr;
    const bool typed = o->count() > 0 && !from_environment;
    if (typed && !known) {
      return error(Code::usage,
                   "{} has no meaning with --serve, which measures a server that runs already; leave it out", name);
    }
  }
  return {};
}

Result<bench::Load> load_of(const BenchServeFlags& f, double temperature) {
  bench::Load load = f.load;
  SWY_LET(load.endpoint, bench::parse_url(f.url));
  SWY_LET(load.prompt, bench::parse_lengths(f.prompt, "--prompt-tokens"));
  SWY_LET(load.answer, bench::parse_lengths(f.answer, "--answer-tokens"));
  load.chat = !f.completions;
  load.temperature = temperature;
  if (load.requests == 0 && load.seconds == 0) load.requests = std::max(16u, 4 * load.clients);
  if (!load.chat && load.turns > 1) {
    return error(Code::usage, "--turns needs chat completions; leave out --completions");
  }
  if (load.api_key.find_first_of("\r\n") != std::string::npos) {
    return error(Code::usage, "--api-key has a line break; give the key alone");
  }
  if (f.extra_file.empty()) return load;
  SWY_LET(load.extra, read_text(f.extra_file, kMostExtra));
  SWY_LET(const auto extra, read_json(load.extra, f.extra_file));
  if (!extra.is_object())
    return error(Code::usage, "{} is not a JSON object; write one such as {{\"top_k\": 20}}", f.extra_file);
  return load;
}

}  // namespace

void add_bench_serve(CLI::App& c, BenchServeFlags& f) {
  bench::Load& l = f.load;
  const auto option = [&](const char* names, auto& target, const char* help) {
    return c.add_option(names, target, help)->group(kGroup);
  };
  option("--serve", f.url,
         "measure the server at this address, such as http://127.0.0.1:8080: it streams answers as the OpenAI protocol "
         "has it");
  option("--served-model", l.model, "the model's name in requests; without it the first that the server lists");
  option("--api-key", l.api_key, "key for the server; the environment variable does not show in lists of processes")
      ->envname("SWITCHYARD_API_KEY");
  auto* clients = option("--clients", l.clients,
                         "closed loop: so many clients, each of which sends its next request when its last has ended");
  clients->check(CLI::Range(1u, 4096u))->capture_default_str();
  option("--rate", l.rate,
         "open loop: so many conversations arrive per second, at random moments, however slow the server is")
      ->check(CLI::Range(0.001, 100000.0))
      ->excludes(clients);
  option("--requests", l.requests, "end after so many requests; without it and --duration four per client, at least 16")
      ->check(CLI::Range(1u, 1u << 20));
  option("--duration", l.seconds, "begin no request after so many seconds")->check(CLI::Range(0.1, 86400.0));
  option("--warm-up", l.warm_up, "conversations at the beginning that do not count")
      ->check(CLI::Range(0u, 1u << 20))
      ->capture_default_str();
  option("--prompt-tokens", f.prompt, "tokens of each prompt, or a range: 16-512; short ones are then common")
      ->capture_default_str();
  option("--answer-tokens", f.answer, "tokens of each answer, or a range")->capture_default_str();
  option("--shared-tokens", l.shared, "tokens at the beginning of every prompt that are the same in all")
      ->check(CLI::Range(0u, 1u << 20))
      ->capture_default_str();
  option("--turns", l.turns, "requests of a conversation, each of which carries the text so far")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str();
  c.add_flag("--completions", f.completions, "use /v1/completions instead of /v1/chat/completions")->group(kGroup);
  c.add_flag("--ends-early", l.ends_early, "let the model end its answers; else `ignore_eos` is sent")->group(kGroup);
  option("--load-seed", l.seed, "of the lengths, the texts and the moments of arrival")->capture_default_str();
  option("--request-timeout", l.timeout, "seconds that one request may take")
      ->check(CLI::Range(0.01, 86400.0))
      ->capture_default_str();
  option("--ttft-limit", f.first_token_ms, "goodput: milliseconds until a request's first token")
      ->check(CLI::Range(0.0, 1e9));
  option("--tpot-limit", f.per_token_ms, "goodput: milliseconds per further token, on average over the request")
      ->check(CLI::Range(0.0, 1e9));
  set_input(*option("--extra", f.extra_file, "file with a JSON object whose fields every request gets"));
}

Status bench_serve(const CLI::App& command, const BenchServeFlags& f, double temperature, bool as_json,
                   const std::string& output) {
  SWY_TRY(check_options(command));
  SWY_LET(bench::Load load, load_of(f, temperature));
  std::unique_ptr<OutputFile> file;
  if (!output.empty()) {
    SWY_LET(file, Os::real().create(output));
  }
  auto ran = bench::run_load(load, [] { return !interrupted.load(); });
  if (!ran.ok()) return ran.status().code() == Code::usage ? ran.status() : ran.status().in(f.url);
  load.model = ran->model;
  const bench::LoadLimits limits{f.first_token_ms / 1e3, f.per_token_ms / 1e3};
  const bench::LoadFigures figures = bench::figures_of(*ran, limits);
  const std::string text =
      as_json ? printable_json(load_json(load, figures, limits).dump(2)) + "\n" : render_load(load, figures, limits);
  if (file != nullptr) {
    SWY_TRY(file->append(std::as_bytes(std::span(text))));
    SWY_TRY(file->commit());
  } else {
    print_document(text);
  }
  if (figures.processor_share > 0.5) {
    say("switchyard: warning: the load generator itself took {:.0f}% of a core; the server may be faster than this "
        "shows\n",
        figures.processor_share * 100);
  }
  if (figures.ended_well > 0 || figures.interrupted) return {};
  if (figures.failures.empty()) return error(Code::io, "{}: no request ended; give more --duration", f.url);
  return error(Code::io, "{}: no request ended well: {}", f.url, figures.failures.front().message);
}

}  // namespace switchyard::cli
