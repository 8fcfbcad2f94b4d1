// SPDX-License-Identifier: Apache-2.0
// switchyard tune: measures which kernels are the fastest on this machine, and has the planner take them.
#include <fmt/chrono.h>

#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/machine.h"
#include "bench/tune.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/row_list.h"
#include "cli/runtime.h"

namespace switchyard::cli {
namespace {

using nlohmann::ordered_json;

struct TuneFlags {
  Settings settings;
  bench::TuneRequest request;
  std::string rows;
  bool json = false, dry = false;
};

std::string today() { return fmt::format("{:%F}", fmt::gmtime(std::time(nullptr))); }

ordered_json json_of(const bench::TuneResult& r, const std::string& path) {
  ordered_json changes = ordered_json::array();
  for (const bench::TuneChange& c : r.changes) {
    changes.push_back({{"device", c.device},
                       {"op", c.op},
                       {"shape", c.shape},
                       {"rows", c.rows},
                       {"context", c.context},
                       {"from", c.from},
                       {"to", c.to},
                       {"from_microseconds", c.from_us},
                       {"to_microseconds", c.to_us},
                       {"per_step", c.per_step}});
  }
  ordered_json failures = ordered_json::array();
  for (const bench::TuneFailure& f : r.failures) {
    failures.push_back({{"device", f.device},
                        {"op", f.op},
                        {"shape", f.shape},
                        {"rows", f.rows},
                        {"context", f.context},
                        {"reason", f.reason}});
  }
  return {{"file", path},
          {"measured", r.measured},
          {"interrupted", r.interrupted},
          {"changes", std::move(changes)},
          {"failures", std::move(failures)}};
}

void print_table(const bench::TuneResult& r) {
  for (const bench::TuneChange& c : r.changes) {
    const std::string context = c.context == 0 ? "" : fmt::format(", context {}", c.context);
    fmt::print("{} {} at {} rows{}: {} instead of {}, {:.1f} us instead of {:.1f} ({:.2f} times as fast)\n", c.op,
               c.shape, c.rows, context, c.to, c.from, c.to_us, c.from_us, c.from_us / c.to_us);
  }
  for (const bench::TuneFailure& f : r.failures) {
    fmt::print("{} {} at {} rows keeps the estimates: {}\n", f.op, f.shape, f.rows, f.reason);
  }
  fmt::print(
      "{} combinations of operation and rows have several kernels and were measured; {} now use another kernel{}\n",
      r.measured, r.changes.size(), r.interrupted ? "; stopped early: the rest keeps the estimates" : "");
}

// Adds the measurements to those of other devices and operations in the file. An unreadable file is replaced.
Status save(const bench::TuneResult& r, const std::string& path) {
  std::string warning;
  Tuning tuning = Tuning::load(Os::real(), path, warning);
  for (const TunedDevice& d : r.devices) {
    if (!d.kernels.empty()) tuning.merge(d);
  }
  std::error_code failed;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), failed);  // `save` reports failures
  return tuning.save(Os::real(), path);
}

Status tune(const TuneFlags& o) {
  const std::string path = tuning_path(o.settings);
  if (path.empty() && !o.dry) {
    return error(
        Code::usage,
        "no cache folder was found ($XDG_CACHE_HOME or ~/.cache); name a file with --tuning, or use --dry-run");
  }
  bench::TuneRequest request = o.request;
  if (!o.rows.empty()) {
    SWY_LET(request.rows, parse_rows(o.rows));
  }
  const auto host = std::make_shared<Host>(thread_count(o.settings));
  if (o.settings.pin) pin(*host);
  SWY_LET(const Registry registry, find_backends(o.settings, *host));
  SWY_TRY(registry.check_libraries());
  SWY_LET(auto selection, registry.select(o.settings.backend));
  SWY_LET(const std::shared_ptr<const Program> program, load_program(o.settings));
  request.load_threads = request.threads = thread_count(o.settings);
  request.rotate_bytes = 4 * bench::describe_machine().last_cache_bytes;
  request.date = today();
  SWY_LET(request.variants, variant_rules(o.settings));
  const auto measure = [&] {
    Progress bar("tuning");
    bool said = false;
    return bench::tune(program, selection.devices, selection.policy, request, [&](size_t done, size_t total) {
      if (!said) {
        say("comparing kernels for {} combinations of operation and rows, {:.0f} s or more\n", total,
            2 * request.seconds * static_cast<double>(total));
      }
      said = true;
      bar.update(done, total);
      return !interrupted.load();
    });
  };
  SWY_LET(const bench::TuneResult result, measure());
  if (!o.dry && result.measured > 0) SWY_TRY(save(result, path));
  if (o.json) {
    print_json(json_of(result, o.dry ? "" : path), 2);
    return {};
  }
  print_table(result);
  if (!o.dry && result.measured > 0) fmt::print("written to {}; --no-tuned ignores it\n", path);
  return {};
}

}  // namespace

void add_tune(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<TuneFlags>();
  CLI::App* c =
      app.add_subcommand("tune", "Measure which kernels are fastest on this machine; later runs use the result");
  c->footer(
      "Example: switchyard tune -m model.swy --backend cpu\n"
      "Close everything else first. Ctrl-C keeps what was measured. docs/profile-a-run.md explains what is chosen by "
      "it.");
  c->add_option("--rows", o->rows, "rows of the steps; without it 1,2,4,...,2048");
  c->add_option("--op", o->request.op, "only this operation (linear, moe_add, ...)");
  c->add_option("--depths", o->request.depths, "tokens in the context before a single row, for attention")
      ->delimiter(',')
      ->check(CLI::Range(0u, 1u << 20))
      ->capture_default_str();
  c->add_option("--seconds", o->request.seconds, "seconds to spend on each kernel, about")
      ->check(CLI::Range(0.0001, 60.0))
      ->capture_default_str();
  c->add_flag("--dry-run", o->dry, "print what would change, and write nothing");
  c->add_flag("--json", o->json, "print JSON");
  add_settings(*c, o->settings, "program");
  set_action(*c, exit_code, [o] { return tune(*o); });
}

}  // namespace switchyard::cli
