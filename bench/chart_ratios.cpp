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

}  // namespace

Figure ratio_chart(const Report& report) {
  std::vector<const Comparison*> rows;
  for (const auto& [metric, at] : places_of(report)) {
    for (const Comparison& c : report.comparisons) {
      if (c.metric == metric && c.at == at && drawable(c) && rows.size() < kMost) rows.push_back(&c);
    }
  }
  if (rows.empty()) return {};
  const bool one_base = std::all_of(rows.begin(), rows.end(), [&](auto* c) { return c->base == rows[0]->base; });
  const auto place = [](const Comparison& c) { return cell_name(c.metric, c.at); };
  std::vector<double> values = {1};
  std::string description;
  double height = kTop + kBottom, names = 0, verdicts = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Comparison& c = *rows[i];
    values.insert(values.end(), {c.ratio, c.low, c.high});
    height += kRow + (i == 0 || place(c) != place(*rows[i - 1]) ? kHead : 0);
    names = std::max(names, text_width(cut(one_line(c.other), 22)));
    const std::string words = verdict_words(c.verdict, c.ratio, c.low, c.high);
    verdicts = std::max(verdicts, text_width(words));
    description += fmt::format("{}, {}: {} than {}. ", place(c), c.other, words, c.base);
  }
  const double left = names + 22, right = kWidth - verdicts - 12, bottom = height - kBottom;
  const Scale x(values, true, left, right);
  Svg svg(kWidth, height, "ratios", "Speed against the base", description);
  double free = -1e9;
  for (const double v : x.ticks()) {
    svg.line(x(v), kTop, x(v), bottom, "grid");
    const std::string label = short_text(v) + "x";
    if (x(v) - text_width(label) / 2 < free) continue;
    svg.text(x(v), bottom + 17, label, Anchor::middle, "soft");
    free = x(v) + text_width(label) / 2 + 5;
  }
  svg.line(x(1), kTop, x(1), bottom, "axis", "stroke-dasharray=\"4 3\"");
  svg.text((left + right) / 2, height - 6,
           one_base ? "times as fast as " + cut(one_line(rows[0]->base), 30) + " (log scale)"
                    : "times as fast as its base (log scale)",
           Anchor::middle, "soft");
  double y = kTop;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Comparison& c = *rows[i];
    if (i == 0 || place(c) != place(*rows[i - 1])) {
      y += kHead;
      svg.text(4, y - 4, place(c), Anchor::start, "head");
    }
    const double middle = y + kRow / 2;
    const size_t series = index_of(report, c.other);
    const std::string words = verdict_words(c.verdict, c.ratio, c.low, c.high);
    svg.text(14, middle + 4, cut(one_line(c.other), 22), Anchor::start, "halo");
    svg.begin_group(fmt::format("{} against {}, {}: {}", c.other, c.base, place(c), words));
    svg.line(x(c.low), middle, x(c.high), middle, stroke_of(series), "stroke-width=\"2\"");
    for (const double end : {c.low, c.high}) {
      svg.line(x(end), middle - 4, x(end), middle + 4, stroke_of(series), "stroke-width=\"1.5\"");
    }
    svg.mark(x(c.ratio), middle, series);
    svg.end_group();
    svg.text(right + 10, middle + 4, words, Anchor::start,
             c.verdict == Verdict::faster   ? "good"
             : c.verdict == Verdict::slower ? "bad"
                                            : "soft");
    y += kRow;
  }
  return {"Speed against the base",
          "Ratios of the rates; bars are 99% intervals. An interval that holds 1 shows no difference.", svg.take()};
}

}  // namespace switchyard::bench
