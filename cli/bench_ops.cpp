// SPDX-License-Identifier: Apache-2.0
// switchyard bench ops: every operation of a model by itself, with every kernel that supports it.
#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/crossover.h"
#include "bench/machine.h"
#include "bench/ops.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/row_list.h"

namespace switchyard::cli {
namespace {

using bench::OpTime;
using bench::OpTimes;
using bench::Probes;
using nlohmann::ordered_json;

struct BenchOpsFlags {
  Settings settings;
  bench::OpRequest request;
  std::string rows = "1,16,64,512,2048";
  std::vector<std::string> backends;  // one after the other; none: that of --backend
  bool check = false, json = false, no_probes = false;
  double most_error = -1;  // of a worst row; below 0: any
};

ordered_json report_json(const Settings& settings, const Probes& p, const OpTimes& ops) {
  ordered_json out = report_head(settings, p);
  out["ops"] = ordered_json::array();
  for (const OpTime& t : ops.times) {
    const double seconds = t.samples.median();
    const Shares shares = shares_of(t.work.bytes(), t.work.operations(), seconds, host_ceiling(p));
    const bench::MedianBounds bounds = bench::median_bounds(t.samples);
    out["ops"].push_back({{"device", t.device},
                          {"op", t.op},
                          {"shape", t.shape},
                          {"per_step", t.count},
                          {"rows", t.rows},
                          {"kernel", t.kernel},
                          {"chosen", t.chosen},
                          {"microseconds", seconds * 1e6},
                          {"low", bounds.low * 1e6},
                          {"high", bounds.high * 1e6},
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
  out["crossovers"] = ordered_json::array();
  for (const bench::Crossover& c : bench::crossovers(ops.times)) {
    out["crossovers"].push_back({{"device", c.device},
                                 {"op", c.op},
                                 {"shape", c.shape},
                                 {"from", c.from},
                                 {"to", c.to},
                                 {"rows_from", c.rows_from},
                                 {"rows", c.rows},
                                 {"about", c.about},
                                 {"clear", c.clear},
                                 {"few", c.few},
                                 {"planner", c.planner}});
  }
  out["interrupted"] = ops.interrupted;
  out["refused"] = ordered_json::array();
  for (const bench::OpRefusal& r : ops.refusals) {
    out["refused"].push_back({{"op", r.op},
                              {"shape", r.shape},
                              {"rows", r.rows},
                              {"kernel", r.kernel},
                              {"reason", r.reason},
                              {"failed", r.failed}});
  }
  return out;
}

// A number, or a dash if the operation has no such work.
std::string cell(double value, int digits) { return value == 0 ? "-" : fmt::format("{:.{}f}", value, digits); }

// Where other kernels take over, as measured and as the planner has it.
void print_crossovers(const OpTimes& ops) {
  const std::vector<bench::Crossover> all = bench::crossovers(ops.times);
  if (all.empty()) return;
  fmt::print("\ncrossovers: where another kernel becomes the fastest\n");
  for (const bench::Crossover& c : all) {
    fmt::print("{} {} {}: {} to {} between {} and {} rows, at about {:.0f}{}; the planner takes it {}\n", c.device,
               c.op, c.shape, c.from, c.to, c.rows_from, c.rows, c.about,
               c.few     ? ", of too few samples to tell"
               : c.clear ? ""
                         : ", within the noise",
               c.planner == 0 ? "at none of these" : fmt::format("from {}", c.planner));
  }
}

// Measurements that are missing, and why.
void print_missing(const OpTimes& ops) {
  for (const bench::OpRefusal& r : ops.refusals) {
    if (r.failed) fmt::print("failed: {} {} at {} rows, {}: {}\n", r.op, r.shape, r.rows, r.kernel, r.reason);
  }
  if (ops.interrupted) fmt::print("stopped early: the rest is missing\n");
}

void print_ops(const Probes& p, const OpTimes& ops, bool errors) {
  print_probes(p);
  size_t shape = 5, kernel = 6, device = 6;
  for (const OpTime& t : ops.times) {
    shape = std::max(shape, t.op.size() + t.shape.size() + 1);
    kernel = std::max(kernel, t.kernel.size());
    device = std::max(device, t.device.size());
  }
  fmt::print("\n{:<{}} {:<{}} {:>3} {:>5}   {:<{}} {:>10} {:>21} {:>10} {:>8} {:>8} {:>9} {:>7}{}\n", "device", device,
             "shape", shape, "x", "rows", "kernel", kernel, "us", "99% of medians", "estimate", "GB/s", "TFLOP/s",
             "bandwidth", "matrix", errors ? " worst row      mean" : "");
  for (const OpTime& t : ops.times) {
    const double seconds = t.samples.median();
    const bench::MedianBounds bounds = bench::median_bounds(t.samples);
    const Shares shares = shares_of(t.work.bytes(), t.work.operations(), seconds, host_ceiling(p));
    const auto percent = [](double v) { return v == 0 ? "-" : fmt::format("{:.1f}%", 100 * v); };
    fmt::print(
        "{:<{}} {:<{}} {:>3} {:>5} {} {:<{}} {:>10.2f} {:>10.2f}-{:<10.2f} {:>10.2f} {:>8} {:>8} {:>9} {:>7}{}\n",
        t.device, device, t.op + " " + t.shape, shape, t.count, t.rows, t.chosen ? '*' : ' ', t.kernel, kernel,
        seconds * 1e6, bounds.low * 1e6, bounds.high * 1e6, t.estimate_us, cell(t.work.bytes() / 1e9 / seconds, 1),
        cell(t.work.operations() / 1e12 / seconds, 3), percent(shares.bandwidth), percent(shares.matrix),
        !errors    ? ""
        : t.errors ? fmt::format(" {:>9.2e} {:>9.2e}", t.errors->worst, t.errors->mean)
                   : fmt::format(" {:>9} {:>9}", "-", "-"));
  }
  fmt::print("\n*: the planner's choice. x: operations of this shape in a step.\n");
  print_crossovers(ops);
  print_missing(ops);
}

// All backends one after another, each with its own plan. Errors: of the first kernel, if all failed.
Result<OpTimes> measure_all(const BenchOpsFlags& o, const Registry& registry, const bench::OpRequest& request) {
  SWY_LET(const std::shared_ptr<const Program> program, load_program(o.settings));
  OpTimes all;
  for (const std::string& backend : o.backends.empty() ? std::vector<std::string>{o.settings.backend} : o.backends) {
    SWY_LET(auto selection, registry.select(backend));
    SWY_LET(selection.policy.tuning, tuning_of(o.settings));
    Progress bar("measuring operations on " + backend);
    bool said = false;
    SWY_LET(OpTimes some,
            bench::measure_ops(program, selection.devices, selection.policy, request, [&](size_t done, size_t total) {
              if (!said) {
                say("{}: {} kernels and row counts, {:.0f} s or more\n", backend, total,
                    request.seconds * static_cast<double>(total));
              }
              said = true;
              bar.update(done, total);
              return !interrupted.load();
            }));
    std::move(some.times.begin(), some.times.end(), std::back_inserter(all.times));
    std::move(some.refusals.begin(), some.refusals.end(), std::back_inserter(all.refusals));
    all.interrupted = some.interrupted;
    if (all.interrupted) break;
  }
  const auto failed = std::find_if(all.refusals.begin(), all.refusals.end(), [](const auto& r) { return r.failed; });
  if (all.times.empty() && !all.interrupted && failed != all.refusals.end()) {
    return error(Code::internal, "every kernel failed; {}: {}", failed->kernel, failed->reason);
  }
  return all;
}

// That no kernel failed or is further from the reference than --max-error allows, and that one was compared.
Status check_errors(const BenchOpsFlags& o, const OpTimes& ops) {
  if (o.most_error < 0) return {};
  for (const bench::OpRefusal& r : ops.refusals) {
    if (r.failed) return error(Code::internal, "{}, {} {} at {} rows: {}", r.kernel, r.op, r.shape, r.rows, r.reason);
  }
  const auto compared = [](const OpTime& t) { return t.errors.has_value(); };
  if (std::none_of(ops.times.begin(), ops.times.end(), compared)) {
    return error(Code::unsupported,
                 "no operation was compared: reference has no kernel for it, or would take too long");
  }
  for (const OpTime& t : ops.times) {
    if (!compared(t) || t.errors->worst <= o.most_error) continue;
    return error(Code::internal, "{}, {} {} at {} rows: the worst row's error is {:.2g}; --max-error allows {:.2g}",
                 t.kernel, t.op, t.shape, t.rows, t.errors->worst, o.most_error);
  }
  return {};
}

Status bench_ops(const BenchOpsFlags& o) {
  const auto host = std::make_shared<Host>(thread_count(o.settings));
  if (o.settings.pin) pin(*host);
  SWY_LET(const Registry registry, find_backends(o.settings, *host));
  SWY_TRY(registry.check_libraries());
  bench::OpRequest request = o.request;
  SWY_LET(request.rows, parse_rows(o.rows));
  request.deterministic = o.settings.deterministic;
  request.load_threads = thread_count(o.settings);
  request.rotate_bytes = 4 * bench::describe_machine().last_cache_bytes;
  if (o.check || o.most_error >= 0) {
    SWY_LET(auto reference, registry.select("reference"));
    request.oracle = reference.devices[0];
  }
  SWY_LET(request.variants, variant_rules(o.settings));
  SWY_LET(const OpTimes ops, measure_all(o, registry, request));
  Probes probes;
  probes.threads = thread_count(o.settings);
  if (!o.no_probes) probes = probe(*host);
  if (o.json) {
    print_json(report_json(o.settings, probes, ops), 2);
  } else {
    print_ops(probes, ops, request.oracle != nullptr);
  }
  return check_errors(o, ops);
}

}  // namespace

void add_bench_ops(CLI::App& bench, int& exit_code) {
  auto o = std::make_shared<BenchOpsFlags>();
  CLI::App* c =
      bench.add_subcommand("ops", "Time each operation of a model by itself, with every kernel that supports it");
  c->footer(
      "Example: switchyard bench ops --backends reference,cpu --rows 1,2,4,...,512 --op moe_add\n"
      "docs/read-a-benchmark.md explains the table.");
  c->add_option("--rows", o->rows, "rows of the step (1 is decoding): 1,16,512, or 1,2,4,...,4096")
      ->capture_default_str();
  c->add_option("--backends", o->backends, "several backends, measured one after the other, instead of --backend")
      ->delimiter(',');
  c->add_option("--op", o->request.op,
                "only this operation (linear, moe_add, acme.gelu/1, ...); without it all that a step runs");
  c->add_flag("--decode", o->request.decode, "each row belongs to a sequence of its own, instead of all to one prompt");
  c->add_option("--depth,--context", o->request.depth,
                "tokens in the context before the row of a sequence (with one row, or --decode)")
      ->check(CLI::Range(0u, 1u << 20))
      ->capture_default_str();
  c->add_option("--seconds", o->request.seconds, "seconds to spend on each kernel, about")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  c->add_flag(
      "--check", o->check,
      "also print errors against reference, for operations that it computes within seconds; an operation with a name "
      "is compared with its function in the program, states included");
  c->add_option("--max-error", o->most_error,
                "as --check, and fail if the error of a kernel's worst row is larger, or if a kernel fails")
      ->check(CLI::Range(0.0, 1e9));
  c->add_flag("--no-probes", o->no_probes, "do not measure the machine; nothing is said of shares of its peak rates");
  c->add_flag("--json", o->json, "print JSON, with the kernels that refused, and why");
  add_settings(*c, o->settings, "program");
  set_action(*c, exit_code, [o] { return bench_ops(*o); });
}

}  // namespace switchyard::cli
