// switchyard bench ops: every operation of a model by itself, with every kernel that takes it.
#include <memory>

#include "bench/machine.h"
#include "bench/ops.h"
#include "cli/bench_report.h"
#include "cli/commands.h"

namespace switchyard::cli {
namespace {

using bench::OpTime;
using bench::OpTimes;
using bench::Probes;
using nlohmann::ordered_json;

struct Options {
  Settings settings;
  bench::OpRequest request;
  bool check = false, json = false;
};

ordered_json report_json(const Settings& settings, const Probes& p, const OpTimes& ops) {
  ordered_json out = report_head(settings, p);
  out["ops"] = ordered_json::array();
  for (const OpTime& t : ops.times) {
    const double seconds = t.samples.median();
    const Shares shares = shares_of(t.work, seconds, p);
    out["ops"].push_back({{"op", t.op},
                          {"shape", t.shape},
                          {"per_step", t.count},
                          {"rows", t.rows},
                          {"kernel", t.kernel},
                          {"chosen", t.chosen},
                          {"microseconds", seconds * 1e6},
                          {"best", t.samples.best() * 1e6},
                          {"worst", t.samples.worst() * 1e6},
                          {"samples", t.samples.seconds.size()},
                          {"estimate", t.estimate_us},
                          {"weight_bytes", t.work.weight_bytes},
                          {"state_bytes", t.work.state_bytes},
                          {"operations", t.work.operations()},
                          {"gbs", t.work.bytes() / 1e9 / seconds},
                          {"tops", t.work.operations() / 1e12 / seconds},
                          {"bandwidth_share", shares.bandwidth},
                          {"matrix_share", shares.matrix},
                          {"bound", shares.tighter()},
                          {"bound_share", shares.bound()}});
    if (t.errors) {
      out["ops"].back().update(
          {{"error", t.errors->rms}, {"worst_row", t.errors->worst}, {"mean_row", t.errors->mean}});
    }
  }
  out["refused"] = ordered_json::array();
  for (const bench::OpRefusal& r : ops.refusals) {
    out["refused"].push_back(
        {{"op", r.op}, {"shape", r.shape}, {"rows", r.rows}, {"kernel", r.kernel}, {"reason", r.reason}});
  }
  return out;
}

// A number, or a dash where the operation has no such work.
std::string cell(double value, int digits) { return value == 0 ? "-" : fmt::format("{:.{}f}", value, digits); }

void print_table(const Probes& p, const OpTimes& ops, bool errors) {
  print_probes(p);
  size_t shape = 5, kernel = 6;
  for (const OpTime& t : ops.times) {
    shape = std::max(shape, t.op.size() + t.shape.size() + 1);
    kernel = std::max(kernel, t.kernel.size());
  }
  fmt::print("\n{:<{}} {:>3} {:>5}   {:<{}} {:>10} {:>10} {:>8} {:>8} {:>9} {:>7}{}\n", "shape", shape, "x", "rows",
             "kernel", kernel, "us", "estimate", "GB/s", "TFLOP/s", "bandwidth", "matrix", errors ? "     error" : "");
  for (const OpTime& t : ops.times) {
    const double seconds = t.samples.median();
    const Shares shares = shares_of(t.work, seconds, p);
    const auto percent = [](double v) { return v == 0 ? "-" : fmt::format("{:.1f}%", 100 * v); };
    fmt::print("{:<{}} {:>3} {:>5} {} {:<{}} {:>10.2f} {:>10.2f} {:>8} {:>8} {:>9} {:>7}{}\n", t.op + " " + t.shape,
               shape, t.count, t.rows, t.chosen ? '*' : ' ', t.kernel, kernel, seconds * 1e6, t.estimate_us,
               cell(t.work.bytes() / 1e9 / seconds, 1), cell(t.work.operations() / 1e12 / seconds, 3),
               percent(shares.bandwidth), percent(shares.matrix),
               !errors    ? ""
               : t.errors ? fmt::format(" {:>9.2e}", t.errors->worst)
                          : fmt::format(" {:>9}", "-"));
  }
  fmt::print("\n*: what the planner chooses. x: operations of this shape in a step.\n");
}

Status bench_ops(const Options& o) {
  const auto host = std::make_shared<Host>(thread_count(o.settings));
  if (o.settings.pin) pin(*host);
  SWY_LET(const Registry registry, find_backends(o.settings, *host));
  SWY_TRY(registry.check_libraries());
  SWY_LET(auto selection, registry.select(o.settings.backend));
  SWY_LET(const std::shared_ptr<const Program> program, load_program(o.settings));
  bench::OpRequest request = o.request;
  request.deterministic = o.settings.deterministic;
  request.load_threads = thread_count(o.settings);
  request.rotate_bytes = 4 * bench::describe_machine().last_cache_bytes;
  if (o.check) {
    SWY_LET(auto reference, registry.select("reference"));
    request.oracle = reference.devices[0];
  }
  for (const std::string& text : o.settings.variants) {
    SWY_LET(VariantRule rule, parse_variant_rule(text));
    request.variants.push_back(std::move(rule));
  }
  const auto measure = [&] {
    Progress bar("measuring operations");
    return bench::measure_ops(program, selection.devices, selection.policy, request, [&](size_t done, size_t total) {
      bar.update(done, total);
      return !interrupted.load();
    });
  };
  SWY_LET(const OpTimes ops, measure());
  const Probes& probes = probe(*host);
  if (o.json) {
    print_json(report_json(o.settings, probes, ops), 2);
  } else {
    print_table(probes, ops, o.check);
  }
  return {};
}

}  // namespace

void add_bench_ops(CLI::App& bench, int& exit_code) {
  auto o = std::make_shared<Options>();
  CLI::App* c =
      bench.add_subcommand("ops", "Time every operation of a model by itself, with every kernel that takes it");
  c->footer(
      "Example: switchyard bench ops --backend cpu --rows 1,512 --op linear\n"
      "docs/read-a-benchmark.md explains the table.");
  c->add_option("--rows", o->request.rows, "rows of the step; 1 is decoding")
      ->delimiter(',')
      ->check(CLI::Range(1u, 65536u))
      ->capture_default_str();
  c->add_option("--op", o->request.op, "only this operation (linear, moe_add, ...); without it all that a step runs");
  c->add_option("--depth,--context", o->request.depth, "tokens in the context before a single row")
      ->check(CLI::Range(0u, 1u << 20))
      ->capture_default_str();
  c->add_option("--seconds", o->request.seconds, "to spend on each kernel, about")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  c->add_flag("--check", o->check, "also errors against reference, of operations that it computes in seconds");
  c->add_flag("--json", o->json, "print JSON, with the kernels that refused and why");
  add_settings(*c, o->settings, "program");
  c->callback([o, &exit_code] {
    if (const Status s = bench_ops(*o); !s.ok()) exit_code = report(s);
  });
}

}  // namespace switchyard::cli
