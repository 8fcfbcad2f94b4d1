// SPDX-License-Identifier: Apache-2.0
// The roofline: operations per second over operations per byte, below the rates that the probes measured.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/charts.h"
#include "bench/report_grids.h"
#include "bench/svg.h"
#include "bench/text.h"

namespace switchyard::bench {
namespace {

constexpr double kWidth = 640, kHeight = 400, kLeft = 60, kTop = 34, kRight = 20, kBottom = 46;

// Ceilings of one device.
struct Roof {
  std::string name;
  double gbs = 0;
  std::vector<std::pair<std::string, double>> tops;
};

struct Point {
  size_t series = 0;
  std::string label, title;
  double intensity = 0, gops = 0;
};

Roof host_roof(const Report& report) {
  const Probes& p = report.probes;
  Roof roof{"memory", p.read_gbs, {}};
  for (const auto& [name, tops] : {std::pair{"fp32", p.fp32_tflops},
                                   {"VNNI int8", p.vnni_tops},
                                   {"AMX bf16", p.amx_bf16_tflops},
                                   {"AMX int8", p.amx_int8_tops}}) {
    if (std::isfinite(tops) && tops > 0) roof.tops.emplace_back(name, tops);
  }
  return roof;
}

// The ceilings that the shares of a configuration refer to.
Roof roof_of(const Report& report, const Configuration& c) {
  for (const DeviceCeiling& ceiling : report.ceilings) {
    if (std::find(c.devices.begin(), c.devices.end(), ceiling.device) == c.devices.end()) continue;
    return {one_line(ceiling.device) + " memory", ceiling.read_gbs, {{one_line(ceiling.matrix), ceiling.matrix_tops}}};
  }
  return host_roof(report);
}

bool usable(double v) { return std::isfinite(v) && v > 1e-12 && v < 1e12; }

std::vector<Point> points_of(const Report& report, std::vector<Roof>& roofs) {
  std::vector<Point> points;
  for (size_t i = 0; i < report.configurations.size(); ++i) {
    const Configuration& c = report.configurations[i];
    const Roof roof = roof_of(report, c);
    double most = 0;
    for (const auto& [name, tops] : roof.tops) most = std::max(most, tops);
    if (!usable(roof.gbs) || !usable(most)) continue;
    bool any = false;
    for (const Cell& cell : c.cells) {
      if (!cell.bandwidth_share || !cell.matrix_share) continue;
      const double gbs = *cell.bandwidth_share * roof.gbs, gops = *cell.matrix_share * most * 1e3;
      if (!usable(gbs) || !usable(gops)) continue;
      any = true;
      points.push_back(
          {i, fmt::format("{}{}", cell.metric == Metric::prefill ? "p" : "d", cell.at),
           fmt::format("{}, {}: {} GOP/s at {} operations per byte, {} GB/s", c.name, cell_name(cell.metric, cell.at),
                       rate_text(gops), rate_text(gops / gbs), rate_text(gbs)),
           gops / gbs, gops});
    }
    const auto same = [&](const Roof& r) { return r.name == roof.name; };
    if (any && std::none_of(roofs.begin(), roofs.end(), same)) roofs.push_back(roof);
  }
  return points;
}

struct Box {
  double left, top, right, bottom;
  bool meets(const Box& b) const { return left < b.right && b.left < right && top < b.bottom && b.top < bottom; }
};

void draw_roof(Svg& svg, const Roof& roof, const Scale& x, const Scale& y, std::vector<Box>& taken) {
  double most = 0;
  for (const auto& [name, tops] : roof.tops) most = std::max(most, tops * 1e3);
  // Along the memory's slope up to the highest ceiling.
  const double foot = std::max(x.low(), y.low() / roof.gbs), ridge = std::min(most / roof.gbs, x.high());
  if (foot < ridge) {
    svg.line(x(foot), y(foot * roof.gbs), x(ridge), y(ridge * roof.gbs), "roof");
    const std::string label = fmt::format("{} {} GB/s", roof.name, rate_text(roof.gbs));
    const double at = std::sqrt(foot * ridge), px = x(at), py = y(at * roof.gbs);
    const double slope = std::atan2(y(ridge * roof.gbs) - y(foot * roof.gbs), x(ridge) - x(foot)) * 180 / M_PI;
    svg.turned_text(px, py - 7, label, slope, "soft");
  }
  double below = 1e9;  // labels from the highest ceiling down; those too near another are only in the table
  for (size_t k = roof.tops.size(); k-- > 0;) {
    const auto& [name, tops] = roof.tops[k];
    const double gops = tops * 1e3, from = std::max(gops / roof.gbs, x.low());
    if (!usable(gops) || from >= x.high()) continue;
    svg.line(x(from), y(gops), kWidth - kRight, y(gops), "roof",
             k + 1 < roof.tops.size() ? "stroke-dasharray=\"5 4\"" : "");
    const std::string label = fmt::format("{} {} TOP/s", name, number_text(tops));
    const Box box{kWidth - kRight - text_width(label) - 4, y(gops) - 17, kWidth - kRight, y(gops) - 2};
    if (std::abs(y(gops) - below) < 15) continue;
    svg.text(kWidth - kRight - 2, y(gops) - 5, label, Anchor::end, "soft halo");
    taken.push_back(box);
    below = y(gops);
  }
}

void draw_points(Svg& svg, const std::vector<Point>& points, const Scale& x, const Scale& y, std::vector<Box> taken) {
  for (const Point& p : points) {
    const double px = x(p.intensity), py = y(p.gops);
    taken.push_back({px - 5, py - 5, px + 5, py + 5});
  }
  for (const Point& p : points) {
    const double px = x(p.intensity), py = y(p.gops), width = text_width(p.label);
    svg.begin_group(p.title);
    svg.mark(px, py, p.series);
    const std::pair<double, double> places[] = {{8, 4}, {-8 - width, 4}, {-width / 2, -9}, {-width / 2, 18}};
    for (const auto& [dx, dy] : places) {
      const Box box{px + dx, py + dy - 11, px + dx + width, py + dy + 2};
      const bool inside =
          box.left > kLeft && box.right < kWidth - 2 && box.top > kTop && box.bottom < kHeight - kBottom;
      if (!inside || std::any_of(taken.begin(), taken.end(), [&](const Box& b) { return b.meets(box); })) continue;
      svg.text(box.left, py + dy, p.label, Anchor::start, "halo");
      taken.push_back(box);
      break;
    }
    svg.end_group();
  }
}

void draw_axes(Svg& svg, const Scale& x, const Scale& y) {
  for (const double v : y.ticks()) {
    svg.line(kLeft, y(v), kWidth - kRight, y(v), "grid");
    svg.text(kLeft - 7, y(v) + 4, short_text(v), Anchor::end, "soft");
  }
  for (const double v : x.ticks()) {
    svg.line(x(v), kTop, x(v), kHeight - kBottom, "grid");
    svg.text(x(v), kHeight - kBottom + 17, short_text(v), Anchor::middle, "soft");
  }
  svg.line(kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom, "axis");
  svg.text((kLeft + kWidth - kRight) / 2, kHeight - 8, "operations per byte of memory (log scale)", Anchor::middle,
           "soft");
  svg.text(6, 16, "GOP/s: 10⁹ operations per second (log scale)", Anchor::start, "soft");
}

// Marks and names in a row at the top right.
void draw_key(Svg& svg, const Report& report, const std::vector<Point>& points) {
  double right = kWidth - 4;
  for (size_t i = report.configurations.size(); i-- > 0;) {
    if (std::none_of(points.begin(), points.end(), [&](const Point& p) { return p.series == i; })) continue;
    const std::string name = cut(one_line(report.configurations[i].name), 18);
    if (right - text_width(name) - 24 < 310) break;  // the title of the axis
    svg.text(right, 16, name, Anchor::end);
    svg.mark(right - text_width(name) - 8, 12, i);
    right -= text_width(name) + 28;
  }
}

}  // namespace

Figure roofline_chart(const Report& report) {
  std::vector<Roof> roofs;
  const std::vector<Point> points = points_of(report, roofs);
  if (points.empty()) return {};
  std::vector<double> xs, ys;
  std::string description;
  for (const Point& p : points) {
    xs.push_back(p.intensity);
    ys.push_back(p.gops);
    description += p.title + ". ";
  }
  for (const Roof& roof : roofs) {
    for (const auto& [name, tops] : roof.tops) {
      xs.push_back(tops * 1e3 / roof.gbs);
      ys.push_back(tops * 1e3);
      description += fmt::format("{}: {} TOP/s. ", name, number_text(tops));
    }
    description += fmt::format("{}: {} GB/s. ", roof.name, rate_text(roof.gbs));
  }
  const Scale x(xs, true, kLeft, kWidth - kRight), y(ys, true, kHeight - kBottom, kTop);
  Svg svg(kWidth, kHeight, "roofline", "Roofline", description);
  std::vector<Box> taken;
  draw_axes(svg, x, y);
  for (const Roof& roof : roofs) draw_roof(svg, roof, x, y, taken);
  draw_points(svg, points, x, y, std::move(taken));
  draw_key(svg, report, points);
  return {"Roofline",
          "Lines are what the probes of this run reached. p512 is a prompt of 512 tokens, d1024 a token after 1024.",
          svg.take()};
}

}  // namespace switchyard::bench
