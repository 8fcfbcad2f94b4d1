// switchyard bench: how fast a model runs here, and how near that is to what the machine can do.
#include <algorithm>
#include <memory>

#include "bench/measure.h"
#include "bench/probes.h"
#include "bench/workload.h"
#include "cli/commands.h"
#include "cli/runtime.h"

namespace switchyard::cli {
namespace {

using bench::Measurement;
using bench::Probes;
using bench::Workload;
using nlohmann::ordered_json;

struct Options {
  Settings settings;
  std::vector<uint32_t> prefill = {512, 1341}, depths = {0, 1024};
  uint32_t decode = 64, repeat = 5;
  bool ops = false, json = false;
};

// Tokens of a pseudo-random text: routing, and so speed, depends little on what they are when weights are real, and a
// prompt of one repeated token would touch too few experts.
std::vector<int32_t> some_tokens(uint32_t n, uint32_t vocab) {
  std::vector<int32_t> ids(n);
  uint64_t x = 88172645463325252ull;
  for (int32_t& id : ids) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    id = static_cast<int32_t>(x % vocab);
  }
  return ids;
}

struct Row {
  std::string name;
  uint32_t tokens = 0;  // per sample
  Measurement m;
  Workload work;

  double rate(double seconds) const { return tokens / seconds; }
  // Share of what the memory and the matrix units allow, by the tighter of the two.
  double bandwidth_share(const Probes& p) const { return work.bytes() / 1e9 / m.samples.median() / p.read_gbs; }
  double matrix_share(const Probes& p) const {
    return p.matrix_tops() == 0 ? 0 : work.operations() / 1e12 / m.samples.median() / p.matrix_tops();
  }
};

Status check(const Options& o, const Model& model) {
  for (const uint32_t n : o.prefill) {
    if (n > model.context()) {
      return error(Code::usage, "--prefill {} does not fit the context of {}; --ctx raises it", n, model.context());
    }
  }
  for (const uint32_t depth : o.depths) {
    if (o.decode != 0 && depth + o.decode + 32 > model.context()) {
      return error(Code::usage, "--depth {} and --decode {} do not fit the context of {}; --ctx raises it", depth,
                   o.decode, model.context());
    }
  }
  return {};
}

Result<std::vector<Row>> measure(const Options& o, Runtime& r) {
  std::vector<Row> rows;
  Progress bar("measuring");
  const size_t total = o.prefill.size() + (o.decode != 0 ? o.depths.size() : 0);
  const auto keep_going = [] { return !interrupted.load(); };
  for (const uint32_t n : o.prefill) {
    bar.update(rows.size(), total);
    const auto prompt = some_tokens(n, r.model->vocab());
    SWY_LET(Measurement m, bench::measure_prefill(*r.model, *r.host, prompt, o.repeat, keep_going));
    rows.push_back({fmt::format("prefill {}", n), n, std::move(m), bench::workload_of(*r.program, n, n)});
  }
  for (const uint32_t depth : o.depths) {
    if (o.decode == 0) break;
    bar.update(rows.size(), total);
    const auto context = some_tokens(depth, r.model->vocab());
    SWY_LET(Measurement m, bench::measure_decode(*r.model, *r.host, context, o.decode, keep_going));
    rows.push_back(
        {fmt::format("decode at {}", depth), 1, std::move(m), bench::workload_of(*r.program, 1, depth + o.decode / 2)});
  }
  return rows;
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

ordered_json report_json(const Options& o, const Runtime& r, const Probes& p, const std::vector<Row>& rows) {
  ordered_json out = {{"model", o.settings.model.empty() ? "demo" : o.settings.model},
                      {"quantization", std::string(r.program->quantization)},
                      {"devices", r.model->device_names()},
                      {"threads", r.host->threads()},
                      {"load_seconds", r.load_seconds},
                      {"peak_memory_bytes", bench::peak_memory_bytes()},
                      {"machine",
                       {{"read_gbs_one_thread", p.read_gbs_one},
                        {"read_gbs", p.read_gbs},
                        {"fp32_tflops", p.fp32_tflops},
                        {"vnni_tops", p.vnni_tops},
                        {"amx_int8_tops", p.amx_int8_tops},
                        {"amx_bf16_tflops", p.amx_bf16_tflops}}},
                      {"rows", ordered_json::array()}};
  for (const Row& row : rows) {
    const auto& s = row.m.samples;
    ordered_json j = {{"name", row.name},
                      {"tokens_per_second", row.rate(s.median())},
                      {"best", row.rate(s.best())},
                      {"worst", row.rate(s.worst())},
                      {"samples", s.seconds.size()},
                      {"megabytes", row.work.bytes() / 1e6},
                      {"gigaoperations", row.work.operations() / 1e9},
                      {"bandwidth_share", row.bandwidth_share(p)},
                      {"matrix_share", row.matrix_share(p)}};
    if (o.ops) j["kernels"] = kernels_json(row);
    out["rows"].push_back(std::move(j));
  }
  return out;
}

void print_probes(const Probes& p) {
  const auto rate = [](double v, const char* unit) {
    return v == 0 ? std::string("-") : fmt::format("{:.2f} {}", v, unit);
  };
  fmt::print(
      "machine, {} threads: memory read {:.1f} GB/s ({:.1f} with one thread); fp32 {}, VNNI {}, AMX int8 {}, "
      "AMX bf16 {}\n",
      p.threads, p.read_gbs, p.read_gbs_one, rate(p.fp32_tflops, "TFLOP/s"), rate(p.vnni_tops, "TOPS"),
      rate(p.amx_int8_tops, "TOPS"), rate(p.amx_bf16_tflops, "TFLOP/s"));
}

void print_table(const Options& o, const Runtime& r, const Probes& p, const std::vector<Row>& rows) {
  print_probes(p);
  fmt::print("model {}: {}; on {}; loaded in {:.1f} s; peak memory {:.2f} GiB\n\n",
             o.settings.model.empty() ? "demo" : o.settings.model, r.program->quantization,
             fmt::join(r.model->device_names(), ", "), r.load_seconds,
             static_cast<double>(bench::peak_memory_bytes()) / 1073741824);
  fmt::print("{:<16} {:>10} {:>10} {:>10} {:>11} {:>10} {:>10} {:>10}\n", "", "tok/s", "best", "worst", "MB moved",
             "GOP", "bandwidth", "matrix");
  for (const Row& row : rows) {
    const auto& s = row.m.samples;
    fmt::print("{:<16} {:>10.1f} {:>10.1f} {:>10.1f} {:>11.1f} {:>10.1f} {:>9.0f}% {:>9.0f}%\n", row.name,
               row.rate(s.median()), row.rate(s.best()), row.rate(s.worst()), row.work.bytes() / 1e6,
               row.work.operations() / 1e9, 100 * row.bandwidth_share(p), 100 * row.matrix_share(p));
  }
  for (const Row& row : rows) {
    if (!o.ops) break;
    fmt::print("\n{:<16} {:<28} {:>7} {:>10} {:>7}\n", row.name, "kernel", "calls", "ms", "share");
    const ordered_json kernels = kernels_json(row);
    double sum = 0;
    for (const auto& k : kernels) sum += k["ms"].get<double>();
    for (const auto& k : kernels) {
      fmt::print("{:<16} {:<28} {:>7.0f} {:>10.3f} {:>6.1f}%\n", "", k["kernel"].get<std::string>(),
                 k["calls"].get<double>(), k["ms"].get<double>(), 100 * k["ms"].get<double>() / sum);
    }
  }
}

Status bench_command(const Options& o) {
  Settings settings = o.settings;
  if (settings.context == 0) {  // as much as is asked for
    uint32_t needed = 0;
    for (const uint32_t n : o.prefill) needed = std::max(needed, n);
    for (const uint32_t d : o.depths) needed = std::max(needed, d + o.decode + 32);
    settings.context = needed;
  }
  SWY_LET(Runtime r, load_runtime(settings));
  SWY_TRY(check(o, *r.model));
  const Probes probes = bench::probe_machine(r.host->threads());
  SWY_LET(const std::vector<Row> rows, measure(o, r));
  if (o.json) {
    print_json(report_json(o, r, probes, rows), 2);
  } else {
    print_table(o, r, probes, rows);
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
  c->add_option("--depth", o->depths, "tokens in the context before decoding")
      ->delimiter(',')
      ->check(CLI::Range(0u, 1u << 20))
      ->capture_default_str();
  c->add_option("--repeat", o->repeat, "prompts per length")->check(CLI::Range(1u, 1000u))->capture_default_str();
  c->add_flag("--ops", o->ops, "also the time of every kernel inside a step");
  c->add_flag("--json", o->json, "print JSON");
  add_settings(*c, o->settings, "program");
  c->callback([o, &exit_code] {
    if (const Status s = bench_command(*o); !s.ok()) exit_code = report(s);
  });
}

}  // namespace switchyard::cli
