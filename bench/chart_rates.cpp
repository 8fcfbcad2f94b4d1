// SPDX-License-Identifier: Apache-2.0
// Tokens per second over the length of a prompt, the context, or the number of requests.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/charts.h"
#include "bench/report_grids.h"
#include "bench/svg.h"
#include "bench/text.h"

namespace switchyard::bench {
namespace {

constexpr double kWidth = 640, kHeight = 350, kLeft = 52, kTop = 34, kBottom = 46;
constexpr size_t kLongestName = 22;

struct Point {
  double x = 0;
  Interval rate;
};

struct Series {
  size_t index = 0;  // of the configuration
  std::string name;
  std::vector<Point> points;
};

std::vector<Series> series_of(const Report& report, Metric metric) {
  std::vector<Series> all;
  for (size_t i = 0; i < report.configurations.size(); ++i) {
    const Configuration& c = report.configurations[i];
    Series s{i, cut(one_line(c.name), kLongestName), {}};
    for (const Cell& cell : c.cells) {
      if (cell.metric != metric || cell.state != State::measured || !cell.rate) continue;
      if (std::isfinite(cell.rate->median) && cell.rate->median > 0) {
        s.points.push_back({static_cast<double>(cell.at), *cell.rate});
      }
    }
    std::sort(s.points.begin(), s.points.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
    if (!s.points.empty()) all.push_back(std::move(s));
  }
  return all;
}

// The places of the x axis: logarithmic, with 0 one step before the smallest value.
class Places {
 public:
  Places(const std::vector<Series>& series, double from, double to) : from_(from), to_(to) {
    for (const Series& s : series) {
      for (const Point& p : s.points) values_.insert(p.x);
    }
    const auto positive = values_.upper_bound(0);
    low_ = positive == values_.end() ? 1 : *positive;
    high_ = std::max(*values_.rbegin(), low_);
    zero_ = values_.contains(0);
  }
  double operator()(double x) const {
    const double span = std::log(high_ / low_), gap = zero_ ? std::max(span / 6, 0.5) : 0;
    if (span + gap == 0) return (from_ + to_) / 2;
    const double at = x <= 0 ? 0 : gap + std::log(x / low_);
    return from_ + 26 + at / (span + gap) * (to_ - from_ - 44);
  }
  const std::set<double>& values() const { return values_; }

 private:
  std::set<double> values_;
  double from_, to_, low_, high_;
  bool zero_;
};

void draw_axes(Svg& svg, const Scale& y, const Places& x, double right, const std::string& x_title,
               const std::string& y_title) {
  const double bottom = kHeight - kBottom;
  for (const double v : y.ticks()) {
    svg.line(kLeft, y(v), right, y(v), "grid");
    svg.text(kLeft - 7, y(v) + 4, short_text(v), Anchor::end, "soft");
  }
  svg.line(kLeft, bottom, right, bottom, "axis");
  double free = -1e9;
  for (const double v : x.values()) {
    svg.line(x(v), bottom, x(v), bottom + 5, "axis");
    const std::string label = fmt::format("{:.0f}", v);
    const double half = text_width(label) / 2;
    if (x(v) - half < free) continue;
    svg.text(x(v), bottom + 19, label, Anchor::middle, "soft");
    free = x(v) + half + 6;
  }
  svg.text((kLeft + right) / 2, kHeight - 8, x_title, Anchor::middle, "soft");
  svg.text(6, 16, y_title, Anchor::start, "soft");
}

void draw_series(Svg& svg, const Series& s, const Scale& y, const Places& x, const std::string& unit) {
  std::vector<std::pair<double, double>> path;
  for (const Point& p : s.points) path.emplace_back(x(p.x), y(p.rate.median));
  if (path.size() > 1) svg.path(path, stroke_of(s.index), "stroke-width=\"2\"");
  for (const Point& p : s.points) {
    svg.begin_group(fmt::format("{}, {:.0f} {}: {} tok/s ({}–{})", s.name, p.x, unit, rate_text(p.rate.median),
                                rate_text(p.rate.low), rate_text(p.rate.high)));
    const double at = x(p.x), low = y(p.rate.low), high = y(p.rate.high);
    const std::string kind = stroke_of(s.index);
    svg.line(at, low, at, high, kind, "stroke-width=\"1.5\"");
    for (const double end : {low, high}) svg.line(at - 4, end, at + 4, end, kind, "stroke-width=\"1.5\"");
    svg.mark(at, y(p.rate.median), s.index);
    svg.end_group();
  }
}

// The values as labels, if there is room: above a point, or otherwise below it.
void draw_values(Svg& svg, const std::vector<Series>& series, const Scale& y, const Places& x) {
  struct Box {
    double x, y, half;
  };
  std::vector<Box> taken;
  for (const Series& s : series) {
    for (const Point& p : s.points) {
      taken.push_back({x(p.x), (y(p.rate.low) + y(p.rate.high)) / 2, 6});
    }
  }
  const auto free = [&](const Box& box) {
    return box.y > kTop - 8 && box.y < kHeight - kBottom - 8 &&
           std::none_of(taken.begin(), taken.end(), [&](const Box& b) {
             return std::abs(b.x - box.x) < b.half + box.half && std::abs(b.y - box.y) < 13;
           });
  };
  for (const Series& s : series) {
    for (const Point& p : s.points) {
      const std::string label = rate_text(p.rate.median);
      const double half = text_width(label) / 2;
      for (const double dy : {y(p.rate.high) - 14, y(p.rate.low) + 14}) {
        const Box box{x(p.x), dy, half};
        if (!free(box)) continue;
        svg.text(box.x, box.y + 4, label, Anchor::middle, "halo");
        taken.push_back(box);
        break;
      }
    }
  }
}

void draw_names(Svg& svg, const std::vector<Series>& series, const Scale& y, const Places& x, double right) {
  std::vector<double> wanted;
  for (const Series& s : series) wanted.push_back(y(s.points.back().rate.median));
  const std::vector<double> at = spread(wanted, kTextHeight, kTop + 4, kHeight - kBottom - 4);
  for (size_t i = 0; i < series.size(); ++i) {
    const double end = x(series[i].points.back().x) + 9;
    if (right - end > 20 || std::abs(at[i] - wanted[i]) > 4) {
      svg.line(end, wanted[i], right + 4, at[i], "grid");
    }
    svg.mark(right + 11, at[i], series[i].index);
    svg.text(right + 20, at[i] + 4, series[i].name);
  }
}

struct Words {
  const char *title, *x_title, *unit, *id;
};
Words words_of(Metric metric) {
  switch (metric) {
    case Metric::prefill:
      return {"Prefill by prompt length", "tokens of the prompt (log scale)", "tokens", "prefill"};
    case Metric::decode:
      return {"Decode by context", "tokens in the context (log scale)", "tokens in the context", "decode"};
    default:
      return {"Serving by concurrency", "requests at the same time (log scale)", "requests at a time", "serving"};
  }
}

}  // namespace

Figure rate_chart(const Report& report, Metric metric) {
  const std::vector<Series> series = series_of(report, metric);
  if (series.empty()) return {};
  const Words words = words_of(metric);
  std::vector<double> values;
  double names = 0;
  std::string description;
  for (const Series& s : series) {
    names = std::max(names, text_width(s.name));
    description += s.name + ":";
    for (const Point& p : s.points) {
      for (const double v : {p.rate.median, p.rate.low, p.rate.high}) values.push_back(v);
      description += fmt::format(" {} tok/s at {:.0f} {};", rate_text(p.rate.median), p.x, words.unit);
    }
    description += ' ';
  }
  const bool log = wants_log(values);
  const double right = kWidth - names - 26;
  const Scale y(values, log, kHeight - kBottom, kTop);
  const Places x(series, kLeft, right);
  Svg svg(kWidth, kHeight, words.id, words.title, description);
  draw_axes(svg, y, x, right, words.x_title, log ? "tokens per second (log scale)" : "tokens per second");
  for (const Series& s : series) draw_series(svg, s, y, x, words.unit);
  draw_values(svg, series, y, x);
  draw_names(svg, series, y, x, right);
  return {words.title, "Medians; bars are 99% intervals.", svg.take()};
}

}  // namespace switchyard::bench
