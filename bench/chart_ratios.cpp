// SPDX-License-Identifier: Apache-2.0
// The comparisons of a report: each ratio with its interval, beside the line of "as fast".
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/charts.h"
#include "bench/report_grids.h"
#include "bench/svg.h"
#include "bench/text.h"

namespace switchyard::bench {
namespace {

constexpr double kWidth = 640, kRow = 19, kHead = 24, kTop = 12, kBottom = 42;
constexpr size_t kMost = 40;  // rows that a chart of a page holds; the table has all

bool drawable(const Comparison& c) {
  return std::isfinite(c.ratio) && std::isfinite(c.low) && std::isfinite(c.high) && c.ratio > 0 && c.low > 0 &&
         c.high > 0;
}

size_t index_of(const Report& report, const std::string& name) {
  const Configuration* c = report.configuration(name);
  return c == nullptr ? 0 : static_cast<size_t>(c - report.configurations.data());
}

struct Row {
  std::string place, name, words;  // words: the verdict
  size_t series = 0;
  bool head = false;  // the first of its place
  const Comparison* c = nullptr;
};

std::vector<Row> rows_of(const Report& report) {
  std::vector<Row> rows;
  for (const auto& [metric, at] : places_of(report)) {
    for (const Comparison& c : report.comparisons) {
      if (c.metric != metric || c.at != at || !drawable(c) || rows.size() == kMost) continue;
      const std::string place = cell_name(metric, at);
      rows.push_back({place, cut(one_line(c.other), 22), verdict_words(c.verdict, c.ratio, c.low, c.high),
                      index_of(report, c.other), rows.empty() || rows.back().place != place, &c});
    }
  }
  return rows;
}

void draw_axis(Svg& svg, const Scale& x, double bottom, const std::string& title) {
  double free = -1e9;
  for (const double v : x.ticks()) {
    svg.line(x(v), kTop, x(v), bottom, "grid");
    const std::string label = short_text(v) + "x";
    if (x(v) - text_width(label) / 2 < free) continue;
    svg.text(x(v), bottom + 17, label, Anchor::middle, "soft");
    free = x(v) + text_width(label) / 2 + 5;
  }
  svg.line(x(1), kTop, x(1), bottom, "axis", "stroke-dasharray=\"4 3\"");
  svg.text((x(x.low()) + x(x.high())) / 2, bottom + kBottom - 6, title, Anchor::middle, "soft");
}

void draw_row(Svg& svg, const Row& row, const Scale& x, double middle) {
  const Comparison& c = *row.c;
  svg.text(14, middle + 4, row.name, Anchor::start, "halo");
  svg.begin_group(fmt::format("{} against {}, {}: {}", c.other, c.base, row.place, row.words));
  svg.line(x(c.low), middle, x(c.high), middle, stroke_of(row.series), "stroke-width=\"2\"");
  for (const double end : {c.low, c.high}) {
    svg.line(x(end), middle - 4, x(end), middle + 4, stroke_of(row.series), "stroke-width=\"1.5\"");
  }
  svg.mark(x(c.ratio), middle, row.series);
  svg.end_group();
  const char* tone = c.verdict == Verdict::faster ? "good" : c.verdict == Verdict::slower ? "bad" : "soft";
  svg.text(x(x.high()) + 10, middle + 4, row.words, Anchor::start, tone);
}

}  // namespace

Figure ratio_chart(const Report& report) {
  const std::vector<Row> rows = rows_of(report);
  if (rows.empty()) return {};
  std::vector<double> values = {1};
  std::string description;
  double height = kTop + kBottom, names = 0, verdicts = 0;
  bool one_base = true;
  for (const Row& row : rows) {
    const Comparison& c = *row.c;
    values.insert(values.end(), {c.ratio, c.low, c.high});
    height += kRow + (row.head ? kHead : 0);
    names = std::max(names, text_width(row.name));
    verdicts = std::max(verdicts, text_width(row.words));
    one_base = one_base && c.base == rows[0].c->base;
    description += fmt::format("{}, {}: {} than {}. ", row.place, c.other, row.words, c.base);
  }
  const Scale x(values, true, names + 22, kWidth - verdicts - 12);
  Svg svg(kWidth, height, "ratios", "Speed against the base", description);
  const std::string base = one_base ? cut(one_line(rows[0].c->base), 30) : "its base";
  draw_axis(svg, x, height - kBottom, "times as fast as " + base + " (log scale)");
  double y = kTop;
  for (const Row& row : rows) {
    if (row.head) {
      y += kHead;
      svg.text(4, y - 4, row.place, Anchor::start, "head");
    }
    draw_row(svg, row, x, y + kRow / 2);
    y += kRow;
  }
  return {"Speed against the base",
          "Ratios of the rates; bars are 99% intervals. An interval that holds 1 shows no difference.", svg.take()};
}

}  // namespace switchyard::bench
