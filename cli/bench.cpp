// SPDX-License-Identifier: Apache-2.0
// switchyard bench: backends side by side on one model: how fast each is, how near that is to the machine's limits, and
// whether it is right.
#include <algorithm>
#include <memory>

#include "bench/report_render.h"
#include "cli/bench_compare.h"
#include "cli/bench_options.h"
#include "cli/bench_run.h"
#include "cli/commands.h"
#include "cli/generate.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "core/base/status.h"

namespace switchyard::cli {
namespace {

using bench::Report;
using bench::ReportFormat;
using bench::State;

// Where the report goes. The files are there before anything is measured: a wrong path costs no time.
struct Outputs {
  std::unique_ptr<OutputFile> report, html;  // NULL: stdout, and none
};

Result<Outputs> open_outputs(const BenchOptions& o) {
  Outputs out;
  if (!o.output.empty()) {
    SWY_LET(out.report, Os::real().create(o.output));
  }
  if (!o.html.empty()) {
    SWY_LET(out.html, Os::real().create(o.html));
  }
  return out;
}

Status write_file(OutputFile& file, const std::string& text) {
  SWY_TRY(file.append(std::as_bytes(std::span(text))));
  return file.commit();
}

bool measured_any(const Report& report) {
  return std::any_of(report.configurations.begin(), report.configurations.end(), [](const bench::Configuration& c) {
    return std::any_of(c.cells.begin(), c.cells.end(), [](const bench::Cell& k) { return k.state == State::measured; });
  });
}

// Why nothing at all was measured.
Status nothing(const Report& report) {
  for (const bench::Configuration& c : report.configurations) {
    if (c.state != State::measured) return error(Code::internal, "{}: {}", c.name, c.reason);
    for (const bench::Cell& k : c.cells) {
      if (k.state != State::measured) return error(Code::internal, "{}: {}", c.name, k.reason);
    }
  }
  return error(Code::usage, "there is nothing to measure; name something with --prefill, --decode or --serving");
}

// A report that cannot be written to its file goes to stdout, since it took long to measure.
Status write_report(const Outputs& out, ReportFormat format, const Report& report) {
  const std::string text =
      bench::render(report, format, out.report == nullptr ? bench::output_options() : bench::RenderOptions{});
  Status written = out.report == nullptr ? Status() : write_file(*out.report, text);
  if (out.report == nullptr || !written.ok()) print_document(text);
  if (out.html != nullptr) SWY_TRY(write_file(*out.html, bench::render(report, ReportFormat::html, {})));
  return written;
}

Status bench_command(const BenchOptions& o) {
  SWY_LET(const ReportFormat format, bench::parse_report_format(o.json ? "json" : o.format));
  SWY_LET(const BenchPlan plan, plan_of(o));
  if (plan.cells.empty()) return nothing({});
  SWY_LET(const Outputs outputs, open_outputs(o));
  SWY_LET(const Report report, run_bench(o, plan));
  SWY_TRY(write_report(outputs, format, report));
  return interrupted.load() || measured_any(report) ? Status() : nothing(report);
}

void add_what(CLI::App& c, BenchOptions& o) {
  const auto list = [&](const char* names, auto& target, const char* help) {
    return c.add_option(names, target, help)->delimiter(',')->capture_default_str()->group("What is measured");
  };
  const auto value = [&](const char* names, auto& target, const char* help) {
    return c.add_option(names, target, help)->capture_default_str()->group("What is measured");
  };
  list("--metrics", o.metrics, "which of prefill, decode and serving to measure; without it all");
  list("--prefill", o.prefill, "prompt lengths")->check(CLI::Range(1u, 1u << 20));
  list("--context,--depth", o.depths, "tokens in the context before decoding")->check(CLI::Range(0u, 1u << 20));
  list("--serving", o.serving, "numbers of requests at a time, with mixed lengths")->check(CLI::Range(1u, 64u));
  value("--decode", o.decode, "tokens to generate after each context; 0: none")->check(CLI::Range(0u, 1u << 20));
  value("--repeat", o.repeat, "prompts per length")->check(CLI::Range(1u, 1000u));
  value("--seconds", o.seconds,
        "least seconds for each cell and configuration when several are compared; 0: 4 (12 with --ab)")
      ->check(CLI::Range(0.0, 3600.0));
  value("--starts", o.starts, "how often all processes are started; 0: once (with --ab 12 times, 3 for large models)")
      ->check(CLI::Range(0u, 100u));
  value("--time-limit", o.time_limit, "seconds that one cell may take")->check(CLI::Range(0.1, 86400.0));
  list("--check-tokens", o.check_tokens,
       "tokens of the text whose logits are compared: how many read at once, how many one by one")
      ->expected(2)
      ->check(CLI::Range(1u, 4096u));
  c.add_flag("--check", o.check, "compare with the reference even if only one backend is measured")
      ->group("What is measured");
  c.add_flag("--no-check", o.no_check, "do not compare with the reference")->group("What is measured");
  c.add_flag("--no-probes", o.no_probes, "do not measure the machine; the report then has no shares of its peak rates")
      ->group("What is measured");
  c.add_flag("--random", o.random, "prompts of random ids instead of text")->group("What is measured");
  c.add_flag("--ops", o.ops, "also measure the time of each kernel inside a step")->group("What is measured");
}

void add_sweeps(CLI::App& c, BenchOptions& o) {
  const auto list = [&](const char* names, auto& target, const char* help) {
    return c.add_option(names, target, help)->delimiter(',')->group("What is compared (all combinations)");
  };
  list("--backends", o.backends, "backends: ids, or absolute paths of files; A+B: B runs what A cannot");
  list("--ab", o.ab,
       "compare two builds of one backend, or two backends, in many short turns, to see small differences")
      ->expected(2);
  list("--sampling", o.sampling,
       "decode with sampling, on these paths (auto, fused, candidates, logits); without it, feed a text");
  list("--batch,--sessions", o.batch, "decode with sampling, with this many requests at a time")
      ->check(CLI::Range(1u, 1024u));
  list("--quant", o.quant, "encodings of a synth: model (bf16, i8, i4, i4a)");
  c.remove_option(c.get_option("--threads"));
  list("--threads", o.threads, "threads for backends that compute on the CPU; 0: one per core")
      ->check(thread_range())
      ->envname("SWITCHYARD_THREADS");
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* c = app.add_subcommand("bench", "Compare backends on one model: speed and correctness, side by side");
  c->footer(
      "Example: switchyard bench --backends reference,cpu --html report.html\n"
      "         switchyard bench --ab /old/switchyard_cpu.so /new/switchyard_cpu.so --metrics decode\n"
      "         switchyard bench --serve http://127.0.0.1:8080 --rate 2 --duration 60 --prompt-tokens 32-1024\n"
      "         switchyard bench -m synth:qwen3.5-35b-a3b,layers=4,vocab=32768 --backend cpu --ops\n"
      "Each backend runs in its own process, and they take turns. docs/read-a-benchmark.md explains the report.\n"
      "With --serve a server is measured that runs already; docs/load-test.md explains what to ask of it.");
  add_settings(*c, o->settings, "program");
  add_sweeps(*c, *o);
  add_what(*c, *o);
  add_sampling_flags(*c, o->params);
  add_speculate(*c, o->settings);
  c->add_option("--format", o->format, "table, json, csv, md or html")->capture_default_str()->group("Report");
  c->add_flag("--json", o->json, "short for --format json")->group("Report");
  add_output(*c, "--output,-o", o->output, "write the report to this file instead of standard output")->group("Report");
  add_output(*c, "--html", o->html, "also write it to this file, as one page with charts")->group("Report");
  add_bench_serve(*c, o->serve);
  add_bench_ops(*c, exit_code);
  add_bench_arrival(*c, exit_code);
  add_bench_compare(*c, exit_code);
  set_action(*c, exit_code, [o, c] {
    if (o->serve.url.empty()) return bench_command(*o);
    return bench_serve(*c, o->serve, o->params.temperature, o->json, o->output);
  });
}

}  // namespace switchyard::cli
