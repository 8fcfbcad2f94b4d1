// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/report.h"

#include <algorithm>
#include <cstdio>

namespace switchyard::check {
namespace {

using nlohmann::json;

constexpr const char* kVerdicts[] = {"passed", "failed", "unsupported", "crashed", "hung"};

std::map<std::string, uint64_t> count(const Report& report, const std::string& suite) {
  std::map<std::string, uint64_t> out;
  for (const Result& r : report.results) {
    if (suite.empty() || r.suite == suite) ++out[r.verdict];
  }
  return out;
}

// Why checks of a suite were not run: the reasons that most of them gave, a line each.
std::string reasons(const Report& report, const std::string& suite) {
  constexpr size_t kMost = 3;
  std::map<std::string, uint64_t> counts;
  for (const Result& r : report.results) {
    if (r.suite == suite && r.verdict == "unsupported") ++counts[r.why];
  }
  std::vector<std::pair<uint64_t, std::string>> sorted;
  for (const auto& [why, n] : counts) sorted.emplace_back(n, why);
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string out;
  for (size_t i = 0; i < std::min(kMost, sorted.size()); ++i) {
    out += text("unsupported: ", suite, ", ", sorted[i].first, " of its checks: ", sorted[i].second, "\n");
  }
  if (sorted.size() > kMost) {
    out += text("unsupported: ", suite, ": ", sorted.size() - kMost, " further reasons, which --json lists\n");
  }
  return out;
}

bool bad(const Result& r) { return r.verdict == "failed" || r.verdict == "crashed" || r.verdict == "hung"; }

}  // namespace

std::string line_of(const Result& r, uint64_t seed) {
  if (!bad(r)) return "";
  std::string word = r.verdict;
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::toupper(c); });
  const std::string repeat = text(" [--seed ", seed, "]");
  return text(word, " ", r.suite, "/", r.name, ": ", r.why, r.why.ends_with(repeat) ? "" : repeat);
}

std::string closing_text(const Report& report, const Options& options) {
  if (report.plugin.is_null()) return report.closed + "\n";
  std::string out;
  if (!report.closed.empty()) out += text("only what needs no device was checked: ", report.closed, "\n");
  if (options.errors) {
    for (const auto& [kernel, e] : report.errors) {
      char line[160];
      std::snprintf(line, sizeof line, "%-28s worst row %.2e, mean %.2e\n", kernel.c_str(), e.first, e.second);
      out += line;
    }
  }
  out += "suite           passed  failed  unsupported  crashed  hung  seconds\n";
  double seconds = 0;
  for (const std::string& suite : options.suites) {
    if (!report.seconds.contains(suite)) continue;
    auto n = count(report, suite);
    char line[160];
    std::snprintf(line, sizeof line, "%-14s %7llu %7llu %12llu %8llu %5llu %8.1f\n", suite.c_str(),
                  static_cast<unsigned long long>(n["passed"]), static_cast<unsigned long long>(n["failed"]),
                  static_cast<unsigned long long>(n["unsupported"]), static_cast<unsigned long long>(n["crashed"]),
                  static_cast<unsigned long long>(n["hung"]), report.seconds.at(suite));
    out += line;
    seconds += report.seconds.at(suite);
  }
  auto all = count(report, "");
  const uint64_t broken = all["failed"] + all["crashed"] + all["hung"];
  char time[32];
  std::snprintf(time, sizeof time, "%.1f", seconds);
  for (const std::string& suite : options.suites) out += reasons(report, suite);
  const std::string verdict = broken != 0          ? text(broken, " not passed")
                              : all["passed"] != 0 ? "all passed"
                              : all["listed"] != 0 ? "listed, not run"
                                                   : "nothing was checked";
  return out + text(report.plugin["id"].get<std::string>(), " ", report.plugin["version"].get<std::string>(), ": ",
                    all["passed"] + all["listed"] + broken, " checks, ", verdict, ", seed ", options.seed, ", ", time,
                    " s\n");
}

json to_json(const Report& report, const Options& options) {
  json settings = json::object();
  for (const Setting& s : options.settings) settings[s.name] = s.value;
  json out = {{"program", "switchyard-plugin-check"},
              {"plugin", report.plugin},
              {"path", options.plugin},
              {"oracle", options.oracle.empty() ? "naive" : options.oracle},
              {"settings", settings},
              {"seed", options.seed},
              {"closed", report.closed},
              {"suites", json::object()}};
  for (const std::string& suite : options.suites) {
    if (!report.seconds.contains(suite)) continue;
    auto n = count(report, suite);
    json& s = out["suites"][suite];
    for (const char* v : kVerdicts) s[v] = n[v];
    s["seconds"] = report.seconds.at(suite);
  }
  out["checks"] = json::array();
  for (const Result& r : report.results) {
    out["checks"].push_back({{"suite", r.suite},
                             {"name", r.name},
                             {"verdict", r.verdict},
                             {"why", r.why},
                             {"seconds", r.seconds},
                             {"facts", r.facts}});
  }
  return out;
}

}  // namespace switchyard::check
