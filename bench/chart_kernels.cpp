// SPDX-License-Identifier: Apache-2.0
// Where a step's time goes: one bar per configuration and place, of its kernels by operation.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/charts.h"
#include "bench/report_grids.h"
#include "bench/svg.h"
#include "bench/text.h"

namespace switchyard::bench {
namespace {

constexpr double kWidth = 640, kBar = 20, kRow = 26, kHead = 22, kTop = 8, kLine = 18;
constexpr size_t kOps = 7;  // with their own colour; the last colour is for the others
constexpr const char* kOther = "other";

struct Bar {
  std::string place, name;
  double all = 0;  // milliseconds per step
  std::map<std::string, double> ops;
};

std::string op_of(const CellKernel& k) { return k.op.empty() ? k.kernel.substr(0, k.kernel.find('.')) : k.op; }

// The shortest and the longest prompt and context that have kernels; the others lie between them.
std::vector<std::pair<Metric, uint32_t>> chosen_places(const Report& report) {
  std::vector<std::pair<Metric, uint32_t>> chosen;
  for (const Metric metric : {Metric::prefill, Metric::decode}) {
    std::vector<uint32_t> at;
    for (const auto& [m, place] : places_of(report)) {
      const bool has = std::any_of(report.configurations.begin(), report.configurations.end(), [&](const auto& c) {
        const Cell* cell = c.cell(m, place);
        return cell != nullptr && !cell->kernels.empty();
      });
      if (m == metric && has) at.push_back(place);
    }
    if (!at.empty()) chosen.emplace_back(metric, at.front());
    if (at.size() > 1) chosen.emplace_back(metric, at.back());
  }
  return chosen;
}

std::vector<Bar> bars_of(const Report& report) {
  std::vector<Bar> bars;
  for (const auto& [metric, at] : chosen_places(report)) {
    for (const Configuration& c : report.configurations) {
      const Cell* cell = c.cell(metric, at);
      if (cell == nullptr) continue;
      Bar bar{cell_name(metric, at), cut(one_line(c.name), 22), 0, {}};
      for (const CellKernel& k : cell->kernels) {
        if (!std::isfinite(k.ms) || k.ms <= 0 || k.ms > 1e12) continue;
        bar.ops[op_of(k)] += k.ms;
        bar.all += k.ms;
      }
      if (bar.all > 0) bars.push_back(std::move(bar));
    }
  }
  return bars;
}

// Operations by their share of all bars together, the most expensive first.
std::vector<std::string> ranked_ops(const std::vector<Bar>& bars) {
  std::map<std::string, double> shares;
  for (const Bar& bar : bars) {
    for (const auto& [op, ms] : bar.ops) shares[op] += ms / bar.all;
  }
  std::vector<std::string> ops;
  for (const auto& [op, share] : shares) ops.push_back(op);
  std::stable_sort(ops.begin(), ops.end(), [&](const auto& a, const auto& b) { return shares[a] > shares[b]; });
  if (ops.size() > kOps) ops.resize(kOps);
  return ops;
}

// Returns its height.
double draw_legend(Svg* svg, const std::vector<std::string>& ops) {
  double x = 4, y = kTop + 10;
  for (size_t i = 0; i <= ops.size(); ++i) {
    const std::string name = i < ops.size() ? cut(one_line(ops[i]), 24) : kOther;
    const double width = 18 + text_width(name) + 14;
    if (x + width > kWidth) {
      x = 4;
      y += kLine;
    }
    if (svg != nullptr) {
      svg->rect(x, y - 9, 11, 11, fill_of(i < ops.size() ? i : kOps));
      svg->text(x + 16, y + 1, name, Anchor::start, "soft");
    }
    x += width;
  }
  return y + 8;
}

void draw_bar(Svg& svg, const Bar& bar, const std::vector<std::string>& ops, double left, double right, double y) {
  double x = left;
  const auto segment = [&](const std::string& op, double ms, size_t colour) {
    const double width = ms / bar.all * (right - left);
    if (width <= 0) return;
    svg.begin_group(
        fmt::format("{}, {}: {} {} ({} ms)", bar.place, bar.name, op, percent_text(ms / bar.all), number_text(ms)));
    svg.rect(x, y, std::max(width - 1, 0.5), kBar, fill_of(colour));
    const std::string share = fmt::format("{:.0f}%", 100 * ms / bar.all);
    const std::string name = one_line(op), both = name + " " + share;
    const std::string label = text_width(both) + 12 < width ? both : text_width(share) + 5 < width ? share : "";
    if (!label.empty()) svg.text(x + width / 2, y + kBar / 2 + 4, label, Anchor::middle, "on");
    svg.end_group();
    x += width;
  };
  double rest = bar.all;
  for (size_t i = 0; i < ops.size(); ++i) {
    const auto found = bar.ops.find(ops[i]);
    if (found == bar.ops.end()) continue;
    segment(ops[i], found->second, i);
    rest -= found->second;
  }
  if (rest > bar.all * 1e-6) segment(kOther, rest, kOps);
}

}  // namespace

Figure kernel_chart(const Report& report) {
  const std::vector<Bar> bars = bars_of(report);
  if (bars.empty()) return {};
  const std::vector<std::string> ops = ranked_ops(bars);
  double names = 0, height = draw_legend(nullptr, ops) + 8;
  std::string description;
  for (size_t i = 0; i < bars.size(); ++i) {
    names = std::max(names, text_width(bars[i].name));
    height += kRow + (i == 0 || bars[i].place != bars[i - 1].place ? kHead : 0);
    description += fmt::format("{}, {}:", bars[i].place, bars[i].name);
    for (const std::string& op : ops) {
      const auto found = bars[i].ops.find(op);
      if (found != bars[i].ops.end()) {
        description += fmt::format(" {} {},", op, percent_text(found->second / bars[i].all));
      }
    }
    description += fmt::format(" of {}. ", seconds_text(bars[i].all / 1e3));
  }
  Svg svg(kWidth, height, "kernels", "Time per operation", description);
  double y = draw_legend(&svg, ops);
  const double left = names + 22, right = kWidth - 76;
  for (size_t i = 0; i < bars.size(); ++i) {
    if (i == 0 || bars[i].place != bars[i - 1].place) {
      y += kHead;
      svg.text(4, y - 5, bars[i].place, Anchor::start, "head");
    }
    svg.text(14, y + kBar / 2 + 4, bars[i].name);
    draw_bar(svg, bars[i], ops, left, right, y);
    svg.text(right + 8, y + kBar / 2 + 4, seconds_text(bars[i].all / 1e3));
    y += kRow;
  }
  return {"Time per operation", "Shares of all kernels' time in a step, with that time at the right.", svg.take()};
}

}  // namespace switchyard::bench
