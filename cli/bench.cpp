// switchyard bench: how fast a model runs here, and how near that is to what the machine can do.
#include <algorithm>
#include <memory>

#include "bench/machine.h"
#include "bench/measure.h"
#include "cli/bench_compare.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/generate.h"
#include "cli/sample_text.h"

namespace switchyard::cli {
namespace {

using bench::Measurement;
using bench::Probes;
using bench::Workload;
using nlohmann::ordered_json;

struct Options {
  Settings settings;
  std::vector<uint32_t> prefill = {512, 1341}, depths = {0, 1024};
  uint32_t decode = 128, repeat = 5;
  std::vector<std::string> sampling;  // paths to compare; none: steps over a text, or as the device covers it
  std::vector<uint32_t> sessions;     // that draw at the same time; none: one
  SamplingParams params;
  bool random = false, ops = false, json = false;

  uint32_t text_at(uint32_t depth) const { return depth + 2 + decode + bench::kDecodeExtra; }
  bool draws() const { return !sampling.empty() || !sessions.empty(); }
  // What is compared at each depth: every path with every number of sessions.
  Result<std::vector<bench::Drawing>> ways() const {
    std::vector<bench::Drawing> all;
    for (const std::string& path : sampling.empty() ? std::vector<std::string>{"auto"} : sampling) {
      SWY_LET(const auto parsed, parse_path(path));
      for (const uint32_t n : sessions.empty() ? std::vector<uint32_t>{1} : sessions) all.push_back({parsed, n});
    }
    return all;
  }
};

// `n` tokens of the demo model's text, since routing follows what is read; random ones when they are asked for.
Result<std::vector<int32_t>> some_tokens(const Options& o, const Runtime& r, uint32_t n) {
  Result<std::vector<int32_t>> ids = sample_text(o.random ? nullptr : r.tokenizer.get(), r.model->vocab(), n);
  if (!ids.ok()) return error(ids.status().code(), "{}; --random measures without it", ids.status().message());
  return ids;
}

struct Row {
  std::string name;
  uint32_t tokens = 0;  // per sample
  Measurement m;
  Workload work;

  std::optional<uint64_t> read_bytes = {};  // per token, where it was drawn
  std::string why = {};                     // it was drawn there

  double rate(double seconds) const { return tokens / seconds; }
};

Status check(const Options& o, const Model& model) {
  for (const uint32_t n : o.prefill) {
    if (n > model.context()) {
      return error(Code::usage, "--prefill {} does not fit the context of {}; --ctx raises it", n, model.context());
    }
  }
  for (const uint32_t depth : o.depths) {
    if (o.decode != 0 && o.text_at(depth) > model.context()) {
      return error(Code::usage, "--context {} and --decode {} do not fit the context of {}; --ctx raises it", depth,
                   o.decode, model.context());
    }
  }
  return {};
}

// Decoding with the draws, one row per path and number of sessions.
Status measure_draws(const Options& o, Runtime& r, uint32_t depth, const bench::KeepGoing& keep_going,
                     std::vector<Row>& rows) {
  SWY_LET(std::vector<bench::Drawing> ways, o.ways());
  uint32_t most = 1;
  for (const bench::Drawing& way : ways) most = std::max(most, way.sessions);
  const uint32_t prompt = std::max(depth, 1u);
  SWY_LET(const auto text, some_tokens(o, r, prompt + (most - 1) * bench::kPromptsApart));
  SamplingParams params = o.params;
  params.seed = 1;
  SWY_TRY(bench::measure_drawing(*r.model, *r.host, text, prompt, params, o.decode, ways, keep_going));
  for (bench::Drawing& way : ways) {
    const uint32_t n = way.sessions;
    const std::string name = fmt::format("{} at {}", path_name(way.choice.path), depth);
    rows.push_back({o.sessions.empty() ? name : fmt::format("{}, {}", name, n), n, std::move(way.m),
                    bench::workload_of(*r.program, {n, n, depth + o.decode / 2 + 1, n}), way.read_bytes,
                    way.choice.reason});
  }
  return {};
}

Result<std::vector<Row>> measure(const Options& o, Runtime& r) {
  std::vector<Row> rows;
  Progress bar("measuring");
  const size_t ways = std::max<size_t>(o.sampling.size(), 1) * std::max<size_t>(o.sessions.size(), 1);
  const size_t total = o.prefill.size() + (o.decode != 0 ? o.depths.size() * ways : 0);
  const auto keep_going = [] { return !interrupted.load(); };
  for (const uint32_t n : o.prefill) {
    bar.update(rows.size(), total);
    SWY_LET(const auto prompt, some_tokens(o, r, n));
    SWY_LET(Measurement m, bench::measure_prefill(*r.model, *r.host, prompt, o.repeat, keep_going));
    rows.push_back({fmt::format("prefill {}", n), n, std::move(m), bench::workload_of(*r.program, {n, 1, n})});
  }
  for (const uint32_t depth : o.depths) {
    if (o.decode == 0) break;
    bar.update(rows.size(), total);
    if (o.draws()) {
      SWY_TRY(measure_draws(o, r, depth, keep_going, rows));
      continue;
    }
    SWY_LET(const auto text, some_tokens(o, r, o.text_at(depth)));
    SWY_LET(Measurement m, bench::measure_decode(*r.model, *r.host, text, depth, o.decode, keep_going));
    const Workload work = bench::workload_of(*r.program, {1, 1, depth + o.decode / 2 + 1});
    rows.push_back({fmt::format("decode at {}", depth), 1, std::move(m), work});
  }
  return rows;
}

// Layers of the model: each has one mixer.
double layers_of(const Program& program) {
  return static_cast<double>(std::count_if(program.main().ops.begin(), program.main().ops.end(), [](const Op& op) {
    return op.id == SWY_OP_ATTENTION || op.id == SWY_OP_GATED_DELTA;
  }));
}

ordered_json kernels_json(const Row& row) {
  ordered_json all = ordered_json::array();
  for (const auto& [name, k] : row.m.kernels) {
    const auto steps = static_cast<double>(row.m.kernel_steps);
    all.push_back({{"kernel", name}, {"calls", static_cast<double>(k.calls) / steps}, {"ms", k.seconds * 1e3 / steps}});
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a["ms"] > b["ms"]; });
  return all;
}

ordered_json row_json(const Options& o, const Runtime& r, const Probes& p, const Row& row) {
  const auto& s = row.m.samples;
  const Shares shares = shares_of(row.work, s.median(), p);
  const bench::Overhead& v = row.m.overhead;
  ordered_json j = {{"name", row.name},
                    {"tokens_per_second", row.rate(s.median())},
                    {"best", row.rate(s.best())},
                    {"worst", row.rate(s.worst())},
                    {"mean", row.rate(s.mean())},
                    {"samples", s.seconds.size()},
                    {"weight_megabytes", row.work.weight_bytes / 1e6},
                    {"megabytes", row.work.bytes() / 1e6},
                    {"gigaoperations", row.work.operations() / 1e9},
                    {"bandwidth_share", shares.bandwidth},
                    {"matrix_share", shares.matrix},
                    {"bound", shares.tighter()},
                    {"bound_share", shares.bound()},
                    {"lists", v.lists},
                    {"barriers", v.barriers},
                    {"barriers_per_layer", v.barriers / std::max(layers_of(*r.program), 1.0)},
                    {"core_microseconds", v.core_seconds * 1e6},
                    {"core_share", v.core_share()},
                    {"wait_share", v.wait_share()}};
  if (row.read_bytes) {
    j["read_bytes"] = *row.read_bytes;
    j["drawn_there"] = row.why;
  }
  if (o.ops) j["kernels"] = kernels_json(row);
  return j;
}

ordered_json report_json(const Options& o, const Runtime& r, const Probes& p, const std::vector<Row>& rows,
                         uint64_t peak_bytes) {
  ordered_json out = report_head(o.settings, p);
  out["quantization"] = std::string(r.program->quantization);
  out["devices"] = r.model->device_names();
  out["prompt"] = o.random || r.tokenizer == nullptr ? "random ids" : "text";
  out["load_seconds"] = r.load_seconds;
  out["peak_memory_bytes"] = peak_bytes;
  out["rows"] = ordered_json::array();
  for (const Row& row : rows) out["rows"].push_back(row_json(o, r, p, row));
  return out;
}

void print_kernels(const Row& row) {
  fmt::print("\n{:<16} {:<28} {:>7} {:>10} {:>7}\n", row.name, "kernel", "calls", "ms", "share");
  const ordered_json kernels = kernels_json(row);
  double sum = 0;
  for (const auto& k : kernels) sum += k["ms"].get<double>();
  for (const auto& k : kernels) {
    fmt::print("{:<16} {:<28} {:>7.0f} {:>10.3f} {:>6.1f}%\n", "", k["kernel"].get<std::string>(),
               k["calls"].get<double>(), k["ms"].get<double>(), 100 * k["ms"].get<double>() / sum);
  }
}

void print_table(const Options& o, const Runtime& r, const Probes& p, const std::vector<Row>& rows,
                 uint64_t peak_bytes) {
  print_probes(p);
  fmt::print("model {}: {}; on {}; loaded in {:.1f} s; peak memory {:.2f} GiB\n\n", model_name(o.settings),
             r.program->quantization, fmt::join(r.model->device_names(), ", "), r.load_seconds,
             static_cast<double>(peak_bytes) / 1073741824);
  fmt::print("{:<16} {:>9} {:>9} {:>9} {:>11} {:>9} {:>9} {:>9} {:>8} {:>9} {:>7} {:>7}\n", "", "tok/s", "best",
             "worst", "MB moved", "GOP", "bandwidth", "matrix", "barriers", "per layer", "core", "waiting");
  const double layers = std::max(layers_of(*r.program), 1.0);
  for (const Row& row : rows) {
    const auto& s = row.m.samples;
    const Shares shares = shares_of(row.work, s.median(), p);
    const bench::Overhead& v = row.m.overhead;
    fmt::print(
        "{:<16} {:>9.1f} {:>9.1f} {:>9.1f} {:>11.1f} {:>9.1f} {:>8.1f}% {:>8.1f}% {:>8.0f} {:>9.1f} {:>6.2f}% "
        "{:>6.1f}%\n",
        row.name, row.rate(s.median()), row.rate(s.best()), row.rate(s.worst()), row.work.bytes() / 1e6,
        row.work.operations() / 1e9, 100 * shares.bandwidth, 100 * shares.matrix, v.barriers, v.barriers / layers,
        100 * v.core_share(), 100 * v.wait_share());
  }
  for (const Row& row : rows) {
    if (row.read_bytes)
      fmt::print("{}: {}; {} bytes per token read from the device\n", row.name, row.why, *row.read_bytes);
  }
  for (const Row& row : rows) {
    if (o.ops) print_kernels(row);
  }
}

Status bench_command(const Options& o) {
  Settings settings = o.settings;
  if (settings.context == 0) {  // as much as is asked for
    uint32_t needed = 0;
    for (const uint32_t n : o.prefill) needed = std::max(needed, n);
    for (const uint32_t d : o.depths) needed = std::max(needed, o.text_at(d));
    settings.context = needed;
  }
  SWY_LET(const std::vector<bench::Drawing> ways, o.ways());
  settings.sessions = 0;
  for (const bench::Drawing& way : ways) settings.sessions += way.sessions;
  SWY_LET(Runtime r, load_runtime(settings));
  SWY_TRY(check(o, *r.model));
  SWY_LET(const std::vector<Row> rows, measure(o, r));
  const uint64_t peak_bytes = bench::peak_memory_bytes();  // probing takes memory, too
  const Probes& probes = probe(*r.host);
  if (o.json) {
    print_json(report_json(o, r, probes, rows, peak_bytes), 2);
  } else {
    print_table(o, r, probes, rows, peak_bytes);
  }
  return {};
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("bench", "Measure how fast a model runs, against what the machine can do");
  c->footer(
      "Example: switchyard bench -m synth:qwen3.5-35b-a3b,layers=4,vocab=32768 --backend cpu --ops\n"
      "Shares are of the machine's own rates, which are measured first: `bandwidth` of its memory reads, `matrix` of "
      "its\n"
      "fastest products. docs/read-a-benchmark.md explains the table.");
  c->add_option("--prefill", o->prefill, "prompt lengths")
      ->delimiter(',')
      ->check(CLI::Range(1u, 1u << 20))
      ->capture_default_str();
  c->add_option("--decode", o->decode, "tokens to generate at each depth; 0: none")
      ->check(CLI::Range(0u, 1u << 20))
      ->capture_default_str();
  c->add_option("--context,--depth", o->depths, "tokens in the context before decoding")
      ->delimiter(',')
      ->check(CLI::Range(0u, 1u << 20))
      ->capture_default_str();
  c->add_option("--repeat", o->repeat, "prompts per length")->check(CLI::Range(1u, 1000u))->capture_default_str();
  c->add_option(
       "--sampling", o->sampling,
       "decode by drawing: paths to compare, in turns (auto, fused, candidates, logits); none: steps over a text")
      ->delimiter(',');
  c->add_option("--sessions", o->sessions, "decode by drawing, with this many requests at the same time; several: each")
      ->delimiter(',')
      ->check(CLI::Range(1u, 1024u));
  add_sampling_flags(*c, o->params);
  c->add_flag("--random", o->random, "prompts of random ids instead of text");
  c->add_flag("--ops", o->ops, "also the time of every kernel inside a step");
  c->add_flag("--json", o->json, "print JSON");
  add_settings(*c, o->settings, "program");
  add_bench_ops(*c, exit_code);
  add_bench_compare(*c, exit_code);
  c->callback([o, c, &exit_code] {
    if (!c->get_subcommands().empty()) return;  // `ops` did the work
    if (const Status s = bench_command(*o); !s.ok()) exit_code = report(s);
  });
}

}  // namespace switchyard::cli
