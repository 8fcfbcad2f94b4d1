// SPDX-License-Identifier: Apache-2.0
// Percentiles of serving: how long a request waits for its first token, and between tokens.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/charts.h"
#include "bench/report_grids.h"
#include "bench/svg.h"
#include "bench/text.h"

namespace switchyard::bench {
namespace {

constexpr double kWidth = 640, kRow = 20, kHead = 22, kTop = 10, kBottom = 44, kValues = 190;

struct Row {
  std::string place, name;
  size_t series;
  Percentiles p;
};

bool drawable(const std::optional<Percentiles>& p) {
  return p && std::isfinite(p->p50) && std::isfinite(p->p95) && std::isfinite(p->p99) && p->p50 > 0 && p->p95 > 0 &&
         p->p99 > 0;
}

std::vector<Row> rows_of(const Report& report, std::optional<Percentiles> Cell::*which) {
  std::vector<Row> rows;
  for (const auto& [metric, at] : places_of(report)) {
    for (size_t i = 0; i < report.configurations.size(); ++i) {
      const Configuration& c = report.configurations[i];
      const Cell* cell = c.cell(metric, at);
      if (metric != Metric::serving || cell == nullptr || !drawable(cell->*which)) continue;
      rows.push_back({cell_name(metric, at), cut(one_line(c.name), 22), i, *(cell->*which)});
    }
  }
  return rows;
}

double height_of(const std::vector<Row>& rows) {
  double height = kTop + kBottom + 18;
  for (size_t i = 0; i < rows.size(); ++i) height += kRow + (i == 0 || rows[i].place != rows[i - 1].place ? kHead : 0);
  return height;
}

std::string values_text(const Percentiles& p) {
  return fmt::format("{} · {} · {}", seconds_text(p.p50), seconds_text(p.p95), seconds_text(p.p99));
}

void draw_axis(Svg& svg, const Scale& x, double top, double bottom, const std::string& title) {
  double free = -1e9;
  for (const double v : x.ticks()) {
    svg.line(x(v), top, x(v), bottom, "grid");
    const std::string label = v < 1e-3 ? short_text(v * 1e6) + " us"
                              : v < 1  ? short_text(v * 1e3) + " ms"
                                       : short_text(v) + " s";
    if (x(v) - text_width(label) / 2 < free) continue;
    svg.text(x(v), bottom + 17, label, Anchor::middle, "soft");
    free = x(v) + text_width(label) / 2 + 6;
  }
  svg.text((x(x.low()) + x(x.high())) / 2, bottom + 35, title + " (log scale)", Anchor::middle, "soft");
  svg.text(x(x.high()) + 12, top - 2, "p50 · p95 · p99", Anchor::start, "soft");
}

// One panel from `y` on.
void draw_panel(Svg& svg, const std::vector<Row>& rows, const std::string& title, double left, double y) {
  std::vector<double> values;
  for (const Row& r : rows) values.insert(values.end(), {r.p.p50, r.p.p95, r.p.p99});
  const Scale x(values, true, left, kWidth - kValues);
  const double top = y + 16, bottom = y + height_of(rows) - kBottom;
  draw_axis(svg, x, top, bottom, title);
  y = top;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& r = rows[i];
    if (i == 0 || r.place != rows[i - 1].place) {
      y += kHead;
      svg.text(4, y - 4, r.place, Anchor::start, "head");
    }
    const double middle = y + kRow / 2;
    svg.text(14, middle + 4, r.name);
    svg.begin_group(fmt::format("{}, {}: {} p50 · p95 · p99 {}", r.place, r.name, title, values_text(r.p)));
    svg.line(x(r.p.p50), middle, x(r.p.p99), middle, stroke_of(r.series), "stroke-width=\"2\"");
    svg.line(x(r.p.p95), middle - 6, x(r.p.p95), middle + 6, stroke_of(r.series), "stroke-width=\"2\"");
    svg.mark(x(r.p.p99), middle, r.series, false);
    svg.mark(x(r.p.p50), middle, r.series);
    svg.end_group();
    svg.text(kWidth - kValues + 12, middle + 4, values_text(r.p));
    y += kRow;
  }
}

}  // namespace

Figure latency_chart(const Report& report) {
  const std::vector<Row> first = rows_of(report, &Cell::ttft), next = rows_of(report, &Cell::itl);
  if (first.empty() && next.empty()) return {};
  double names = 0;
  std::string description;
  for (const auto* rows : {&first, &next}) {
    for (const Row& r : *rows) {
      names = std::max({names, text_width(r.name), text_width(r.place) - 10});
      description += fmt::format("{}, {}: {} {}. ", r.place, r.name, rows == &first ? "first token" : "between tokens",
                                 values_text(r.p));
    }
  }
  const double upper = first.empty() ? 0 : height_of(first), lower = next.empty() ? 0 : height_of(next);
  Svg svg(kWidth, upper + lower, "latency", "Waiting while serving", description);
  if (!first.empty()) draw_panel(svg, first, "time to the first token", names + 26, 0);
  if (!next.empty()) draw_panel(svg, next, "time from token to token", names + 26, upper);
  return {"Waiting while serving", "Filled mark: the median; tick: 95%; hollow mark: 99% of all waited no longer.",
          svg.take()};
}

}  // namespace switchyard::bench
