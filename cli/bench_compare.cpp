// SPDX-License-Identifier: Apache-2.0
// switchyard bench compare: what became slower, or wrong, from one report to another.
#include "cli/bench_compare.h"

#include <charconv>
#include <memory>

#include "bench/compare.h"
#include "cli/command.h"
#include "core/base/os.h"
#include "core/base/status.h"

namespace switchyard::cli {
namespace {

constexpr int kRegressed = 3;  // exit code with --fail
constexpr uint64_t kMostBytes = 256u << 20;

struct BenchCompareFlags {
  std::string before, after;
  std::string threshold = "3%", format = "table", output;
  bool fail = false, json = false;
};

// "3%" and "3" are 0.03.
Result<double> parse_threshold(const std::string& text) {
  double percent = 0;
  const char* end = text.data() + text.size();
  const auto [rest, fault] = std::from_chars(text.data(), end, percent);
  const bool whole = rest == end || (rest + 1 == end && *rest == '%');
  if (fault != std::errc{} || !whole || !(percent >= 0 && percent < 100)) {
    return error(Code::usage, "--threshold '{}' is not a percentage below 100; write it like 3%", text);
  }
  return percent / 100;
}

Result<bench::Report> read_report(const std::string& path) {
  SWY_LET(const std::string text, Os::real().read(path, kMostBytes));
  auto report = bench::parse_report(text);
  if (!report.ok()) return report.status().in(path);
  return report;
}

Status compare_command(const BenchCompareFlags& o, int& exit_code) {
  SWY_LET(const bench::ReportFormat format, bench::parse_report_format(o.json ? "json" : o.format));
  SWY_LET(const double threshold, parse_threshold(o.threshold));
  SWY_LET(const bench::Report before, read_report(o.before));
  SWY_LET(const bench::Report after, read_report(o.after));
  const bench::ReportChanges changes = bench::compare_reports(before, after, threshold);
  if (o.fail && changes.rates.empty() && changes.regressions() == 0) {
    return error(Code::invalid_data, "nothing was compared: {} and {} have no measured cell in common", o.before,
                 o.after);
  }
  const std::string text = bench::render_changes(before, after, changes, format,
                                                 o.output.empty() ? bench::output_options() : bench::RenderOptions{});
  if (o.output.empty()) {
    fmt::print("{}", text);
  } else {
    SWY_LET(const auto file, Os::real().create(o.output));
    SWY_TRY(file->append(std::as_bytes(std::span(text))));
    SWY_TRY(file->commit());
  }
  if (o.fail && changes.regressions() > 0) exit_code = kRegressed;
  return {};
}

}  // namespace

void add_bench_compare(CLI::App& bench, int& exit_code) {
  auto o = std::make_shared<BenchCompareFlags>();
  CLI::App* c = bench.add_subcommand("compare", "Compare two reports: what became slower, or less accurate");
  c->footer(
      "Example: switchyard bench --backend cpu --format json --output new.json\n"
      "         switchyard bench compare old.json new.json --threshold 3% --fail");
  add_input(*c, "old", o->before, "report of `bench --format json`")->required();
  add_input(*c, "new", o->after, "the same, later")->required();
  c->add_option("--threshold", o->threshold, "loss of speed that counts as a regression")->capture_default_str();
  c->add_flag("--fail", o->fail, "exit with code 3 when anything regressed");
  c->add_option("--format", o->format, "table, json, csv, md or html")->capture_default_str();
  c->add_flag("--json", o->json, "short for --format json");
  add_output(*c, "--output,-o", o->output, "a file for the result, instead of standard output");
  set_action(*c, exit_code, [o, &exit_code] { return compare_command(*o, exit_code); });
}

}  // namespace switchyard::cli
