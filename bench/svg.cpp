// SPDX-License-Identifier: Apache-2.0
#include "bench/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "bench/text.h"

namespace switchyard::bench {
namespace {

constexpr size_t kShapes = 5;
constexpr size_t kColours = 8;
constexpr double kSteps[] = {1, 2, 5, 10};

double decade(double v) { return std::pow(10, std::floor(std::log10(v))); }

// The next of 1, 2, 5 times a power of ten, at most or at least v.
double round_down(double v) {
  const double unit = decade(v);
  double best = unit;
  for (const double s : kSteps) {
    if (s * unit <= v * (1 + 1e-9)) best = s * unit;
  }
  return best;
}
double round_up(double v) {
  const double unit = decade(v);
  for (const double s : kSteps) {
    if (s * unit >= v * (1 - 1e-9)) return s * unit;
  }
  return 10 * unit;
}

}  // namespace

double text_width(std::string_view utf8) { return 7.1 * static_cast<double>(characters(utf8)); }

std::string stroke_of(size_t series) { return fmt::format("s{}", series % kColours); }
std::string fill_of(size_t series) { return fmt::format("f{}", series % kColours); }

Svg::Svg(double width, double height, const std::string& id, const std::string& title, const std::string& description) {
  body_ = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\" "
      "aria-labelledby=\"{2}-title {2}-desc\">\n<title id=\"{2}-title\">{3}</title>\n<desc "
      "id=\"{2}-desc\">{4}</desc>\n",
      width, height, id, escape_html(title), escape_html(description));
}

void Svg::line(double x1, double y1, double x2, double y2, const std::string& classes, const std::string& more) {
  body_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"{}{}/>\n", x1, y1, x2,
                       y2, classes, more.empty() ? "" : " ", more);
}

void Svg::path(const std::vector<std::pair<double, double>>& points, const std::string& classes,
               const std::string& more) {
  std::string d;
  for (const auto& [x, y] : points) d += fmt::format("{}{:.1f} {:.1f}", d.empty() ? "M" : "L", x, y);
  body_ += fmt::format("<path d=\"{}\" class=\"{}\"{}{}/>\n", d, classes, more.empty() ? "" : " ", more);
}

void Svg::rect(double x, double y, double width, double height, const std::string& classes) {
  body_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"{}\"/>\n", x, y,
                       std::max(width, 0.0), height, classes);
}

void Svg::text(double x, double y, const std::string& text, Anchor anchor, const std::string& classes) {
  const char* where = anchor == Anchor::middle ? " text-anchor=\"middle\""
                      : anchor == Anchor::end  ? " text-anchor=\"end\""
                                               : "";
  const std::string kind = classes.empty() ? "" : fmt::format(" class=\"{}\"", classes);
  body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}{}>{}</text>\n", x, y, where, kind, escape_html(text));
}

void Svg::turned_text(double x, double y, const std::string& text, double degrees, const std::string& classes) {
  body_ += fmt::format(
      "<text transform=\"translate({:.1f} {:.1f}) rotate({:.1f})\" text-anchor=\"middle\" class=\"{}\">{}</text>\n", x,
      y, degrees, classes, escape_html(text));
}

void Svg::mark(double x, double y, size_t series, bool filled) {
  const std::string kind =
      filled ? fmt::format("class=\"{}\"", fill_of(series)) : fmt::format("class=\"{} hollow\"", stroke_of(series));
  const auto polygon = [&](std::initializer_list<std::pair<double, double>> corners) {
    std::string points;
    for (const auto& [dx, dy] : corners) points += fmt::format("{:.1f},{:.1f} ", x + dx, y + dy);
    points.pop_back();
    body_ += fmt::format("<polygon points=\"{}\" {}/>\n", points, kind);
  };
  switch (series % kShapes) {
    case 0:
      body_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" {}/>\n", x, y, kind);
      break;
    case 1:
      polygon({{-3.6, -3.6}, {3.6, -3.6}, {3.6, 3.6}, {-3.6, 3.6}});
      break;
    case 2:
      polygon({{0, -4.8}, {4.6, 3.6}, {-4.6, 3.6}});
      break;
    case 3:
      polygon({{0, -5.2}, {5.2, 0}, {0, 5.2}, {-5.2, 0}});
      break;
    default:
      polygon({{0, 4.8}, {4.6, -3.6}, {-4.6, -3.6}});
  }
}

void Svg::begin_group(const std::string& title) { body_ += fmt::format("<g><title>{}</title>\n", escape_html(title)); }

Scale::Scale(const std::vector<double>& values, bool logarithmic, double from, double to)
    : log_(logarithmic), from_(from), to_(to) {
  double least = std::numeric_limits<double>::max(), most = 0;
  for (const double v : values) {
    if (!std::isfinite(v) || v <= 0 || v > 1e100 || v < 1e-100) continue;
    least = std::min(least, v);
    most = std::max(most, v);
  }
  if (most == 0) least = most = 1;
  if (log_) {
    low_ = round_down(least * 0.95);
    high_ = round_up(most * 1.05);
  } else {
    high_ = most * 1.06;
  }
}

double Scale::operator()(double v) const {
  if (!std::isfinite(v)) return from_;
  const double clamped = std::clamp(v, low_, high_);
  const double share = log_ ? std::log(clamped / low_) / std::log(high_ / low_) : (clamped - low_) / (high_ - low_);
  return from_ + share * (to_ - from_);
}

std::vector<double> Scale::ticks() const {
  std::vector<double> all;
  if (!log_) {
    const double step = round_up(high_ / 6);
    for (int i = 0; i * step <= high_ * (1 + 1e-9); ++i) all.push_back(i * step);
    return all;
  }
  const double decades = std::log10(high_ / low_);
  const int every = std::max(1, static_cast<int>(std::ceil(decades / 8)));
  const int first = static_cast<int>(std::floor(std::log10(low_) + 1e-9));
  for (int e = first; std::pow(10, e) <= high_ * (1 + 1e-9); ++e) {
    for (const double s : {1.0, 2.0, 5.0}) {
      if (decades > 3 && s != 1) continue;
      if ((e - first) % every != 0) continue;
      const double v = s * std::pow(10, e);
      if (v >= low_ * (1 - 1e-9) && v <= high_ * (1 + 1e-9)) all.push_back(v);
    }
  }
  return all;
}

bool wants_log(const std::vector<double>& values) {
  double least = std::numeric_limits<double>::max(), most = 0;
  for (const double v : values) {
    if (!std::isfinite(v) || v <= 0) continue;
    least = std::min(least, v);
    most = std::max(most, v);
  }
  return most > 8 * least;
}

std::vector<double> spread(const std::vector<double>& wanted, double gap, double low, double high) {
  std::vector<size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return wanted[a] < wanted[b]; });
  std::vector<double> at(wanted.size());
  double least = low;
  for (const size_t i : order) {
    at[i] = std::max(wanted[i], least);
    least = at[i] + gap;
  }
  double most = high;  // and back up from the end, where they went beyond it
  for (size_t k = order.size(); k-- > 0;) {
    at[order[k]] = std::min(at[order[k]], most);
    most = at[order[k]] - gap;
  }
  return at;
}

}  // namespace switchyard::bench
