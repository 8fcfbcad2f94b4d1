// SPDX-License-Identifier: Apache-2.0
// Changes between two reports, in the formats of reports.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/charts.h"
#include "bench/compare.h"
#include "bench/report_grids.h"
#include "bench/text.h"

namespace switchyard::bench {
namespace {

using nlohmann::ordered_json;

constexpr const char* kFormat = "switchyard.bench.compare/1";

std::string origin_of(const Report& r) {
  return r.version + (r.commit.empty() ? "" : " (" + r.commit.substr(0, 12) + ")") + ", " + r.date + ", " +
         r.model.name;
}

std::string summary_of(const ReportChanges& c) {
  const size_t n = c.regressions();
  const std::string limit = fmt::format("slower by more than {:.3g}%", 100 * c.threshold);
  if (n == 0)
    return fmt::format("nothing regressed ({} cells; regressed is what is {}, or less right)", c.rates.size(), limit);
  return fmt::format("{} regressed ({}, or less right)", n, limit);
}

Grid rate_grid(const ReportChanges& changes) {
  Grid g{.title = "Speed",
         .note = "Tokens per second by the medians; the new report against the old one, with a 99% interval.",
         .columns = {{"configuration", false},
                     {"", false},
                     {"old", true},
                     {"new", true},
                     {"ratio", true},
                     {"verdict", false},
                     {"", false}},
         .rows = {}};
  const std::string* last = nullptr;
  for (const RateChange& c : changes.rates) {
    const bool first = last == nullptr || *last != c.configuration;
    last = &c.configuration;
    g.rows.push_back({{{first ? c.configuration : ""},
                       {cell_name(c.metric, c.at)},
                       {rate_text(c.before)},
                       {rate_text(c.after)},
                       {fmt::format("{:.3f}", c.ratio)},
                       {verdict_words(c.verdict, c.ratio, c.low, c.high), tone_of(c.verdict)},
                       {c.regressed ? "regressed" : "", Tone::bad}},
                      first});
  }
  return g;
}

Grid other_grid(const ReportChanges& changes) {
  Grid g{.title = "Correctness, and kernels that ran",
         .note = "",
         .columns = {{"configuration", false}, {"", false}, {"old", false}, {"new", false}, {"", false}},
         .rows = {}};
  const std::string* last = nullptr;
  for (const Change& c : changes.others) {
    const bool first = last == nullptr || *last != c.configuration;
    last = &c.configuration;
    g.rows.push_back({{{first ? c.configuration : ""},
                       {c.what},
                       {c.before},
                       {c.after, c.regressed ? Tone::bad : Tone::plain},
                       {c.regressed ? "regressed" : "", Tone::bad}},
                      first});
  }
  return g;
}

Grid missing_grid(const ReportChanges& changes) {
  Grid g{.title = "Not compared", .note = "", .columns = {{"", false}}, .rows = {}};
  for (const std::string& m : changes.missing) g.rows.push_back({{{m}}});
  return g;
}

Document document_of(const Report& before, const Report& after, const ReportChanges& changes) {
  Document d;
  d.title = "switchyard bench compare: " + after.model.name;
  d.facts = {{"old", origin_of(before)}, {"new", origin_of(after)}, {"result", summary_of(changes)}};
  d.warnings = changes.warnings;
  d.grids = {rate_grid(changes), other_grid(changes), missing_grid(changes)};
  std::erase_if(d.grids, [](const Grid& grid) { return grid.rows.empty(); });
  return d;
}

ordered_json json_of(const Report& before, const Report& after, const ReportChanges& changes) {
  const auto origin = [](const Report& r) {
    return ordered_json{{"version", r.version}, {"commit", r.commit}, {"date", r.date}, {"model", r.model.name}};
  };
  ordered_json j = {{"format", kFormat},
                    {"old", origin(before)},
                    {"new", origin(after)},
                    {"threshold", changes.threshold},
                    {"regressions", changes.regressions()},
                    {"cells", ordered_json::array()},
                    {"others", ordered_json::array()},
                    {"missing", changes.missing},
                    {"warnings", changes.warnings}};
  for (const RateChange& c : changes.rates) {
    j["cells"].push_back({{"configuration", c.configuration},
                          {"metric", metric_name(c.metric)},
                          {"at", c.at},
                          {"old", c.before},
                          {"new", c.after},
                          {"ratio", c.ratio},
                          {"low", c.low},
                          {"high", c.high},
                          {"verdict", verdict_name(c.verdict)},
                          {"regressed", c.regressed}});
  }
  for (const Change& c : changes.others) {
    j["others"].push_back({{"configuration", c.configuration},
                           {"what", c.what},
                           {"old", c.before},
                           {"new", c.after},
                           {"regressed", c.regressed}});
  }
  return j;
}

std::string csv_of(const ReportChanges& changes) {
  std::string out = "configuration,what,at,old,new,ratio,low,high,verdict,regressed\n";
  const auto yes = [](bool b) { return b ? "yes" : "no"; };
  for (const RateChange& c : changes.rates) {
    out += fmt::format("{},{},{},{},{},{},{},{},{},{}\n", csv_text(c.configuration), metric_name(c.metric), c.at,
                       csv_number(c.before), csv_number(c.after), csv_number(c.ratio), csv_number(c.low),
                       csv_number(c.high), verdict_name(c.verdict), yes(c.regressed));
  }
  for (const Change& c : changes.others) {
    out += fmt::format("{},{},,{},{},,,,,{}\n", csv_text(c.configuration), csv_text(c.what), csv_text(c.before),
                       csv_text(c.after), yes(c.regressed));
  }
  for (const std::string& m : changes.missing) out += fmt::format(",not compared,,{},,,,,,no\n", csv_text(m));
  return out;
}

// The ratios in the form of a report's chart of comparisons.
std::vector<Figure> figures_of(const Report& after, const ReportChanges& changes) {
  Report view = after;
  view.comparisons.clear();
  for (const RateChange& c : changes.rates) {
    view.comparisons.push_back(
        {"the old report", c.configuration, c.metric, c.at, c.ratio, c.low, c.high, c.verdict, 0});
  }
  Figure figure = ratio_chart(view);
  if (figure.svg.empty()) return {};
  figure.title = "Speed against the old report";
  return {std::move(figure)};
}

}  // namespace

std::string render_changes(const Report& before, const Report& after, const ReportChanges& changes, ReportFormat format,
                           const RenderOptions& options) {
  switch (format) {
    case ReportFormat::json:
      return json_of(before, after, changes).dump(2, ' ', false, ordered_json::error_handler_t::replace) + '\n';
    case ReportFormat::csv:
      return csv_of(changes);
    case ReportFormat::md:
      return md_of(document_of(before, after, changes));
    case ReportFormat::html:
      return html_of(document_of(before, after, changes), figures_of(after, changes));
    default:
      return table_of(document_of(before, after, changes), options);
  }
}

}  // namespace switchyard::bench
