// SPDX-License-Identifier: Apache-2.0
// switchyard bench arrival: how long decoding sessions wait while a prompt that has arrived is read.
#include "bench/arrival.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/generate.h"
#include "cli/output.h"
#include "cli/runtime.h"
#include "cli/sample_text.h"

namespace switchyard::cli {
namespace {

struct BenchArrivalFlags {
  Settings settings;
  bench::ArrivalLoad load;
  bool random = false, json = false, unprepared = false;
};

nlohmann::ordered_json as_json(const bench::Samples& s) {
  return {{"median", s.median()}, {"p99", s.at(0.99)}, {"worst", s.worst()}, {"samples", s.seconds.size()}};
}
void print_line(const char* what, const bench::Samples& s) {
  fmt::print("{:<24}{:>9.2f}{:>9.2f}{:>9.2f}{:>9}\n", what, s.median() * 1e3, s.at(0.99) * 1e3, s.worst() * 1e3,
             s.seconds.size());
}

Status bench_arrival(const BenchArrivalFlags& o) {
  Settings settings = o.settings;
  settings.sessions = o.load.all_sessions();
  settings.context = std::max(settings.context, o.load.tokens(settings.chunk != 0 ? settings.chunk : Model::kChunk));
  SWY_LET(const Runtime r, load_runtime(settings));
  SWY_LET(const std::vector<int32_t> text,
          sample_text(o.random ? nullptr : r.tokenizer.get(), r.model->vocab(), o.load.context + o.load.prompt));
  double preparing = 0;
  if (!o.unprepared) {
    SWY_LET(preparing, prepare(*r.model, o.load.sampling));
  }
  const uint64_t sizes = r.model->runner().recorded();
  SWY_LET(const bench::Arrival a, bench::measure_arrival(*r.model, o.load, text, [] { return !interrupted.load(); }));
  if (o.json) {
    print_json({{"sessions", o.load.sessions},
                {"context", o.load.context},
                {"prompt", o.load.prompt},
                {"prompt_rows", o.load.prompt_rows},
                {"prepared", sizes},
                {"preparing", preparing},
                {"made_later", r.model->runner().recorded() - sizes},
                {"alone", as_json(a.alone)},
                {"beside", as_json(a.beside)},
                {"ttft", as_json(a.ttft)}},
               2);
    return {};
  }
  fmt::print("{} sessions decode at {} tokens; {} prompts of {} arrive, {} rows in a step\n", o.load.sessions,
             o.load.context, o.load.arrivals, o.load.prompt, o.load.prompt_rows);
  fmt::print("{} step sizes planned in advance in {:.2f} s, {} when first needed\n", sizes, preparing,
             r.model->runner().recorded() - sizes);
  fmt::print("{:<24}{:>9}{:>9}{:>9}{:>9}\n", "milliseconds", "median", "p99", "worst", "samples");
  print_line("gaps, no prompt", a.alone);
  print_line("gaps, beside a prompt", a.beside);
  print_line("prompt's first token", a.ttft);
  return {};
}

}  // namespace

void add_bench_arrival(CLI::App& bench, int& exit_code) {
  auto o = std::make_shared<BenchArrivalFlags>();
  CLI::App* c = bench.add_subcommand("arrival", "Measure how long decoding sessions wait while a long prompt is read");
  c->footer("Example: switchyard bench arrival --backend cpu --sessions 4 --context 128 --prompt 500");
  const auto value = [&](const char* name, uint32_t& target, const char* help, uint32_t least, uint32_t most) {
    c->add_option(name, target, help)->check(CLI::Range(least, most))->capture_default_str();
  };
  value("--sessions", o->load.sessions, "that decode", 1, 64);
  value("--context,--depth", o->load.context, "tokens that each session has read before", 1, 1u << 20);
  value("--prompt", o->load.prompt, "tokens of the prompt that arrives", 1, 1u << 20);
  value("--arrivals", o->load.arrivals, "prompts, one after the other", 1, 1000);
  value("--apart", o->load.apart, "tokens that every session generates before each prompt", 1, 1u << 16);
  value("--prompt-rows", o->load.prompt_rows, "rows of the prompt per step; 0: as many as --chunk allows", 0, 1u << 20);
  c->add_flag("--random", o->random, "random ids instead of text");
  c->add_flag("--unprepared", o->unprepared, "plan each step size when it first comes up, not in advance");
  c->add_flag("--json", o->json, "print JSON");
  add_settings(*c, o->settings, "program");
  add_sampling_flags(*c, o->load.sampling);
  set_action(*c, exit_code, [o] { return bench_arrival(*o); });
}

}  // namespace switchyard::cli
