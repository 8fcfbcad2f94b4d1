// SPDX-License-Identifier: Apache-2.0
// Drawing for the charts of a report: elements of SVG, scales with their ticks, labels that keep apart.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace switchyard::bench {

constexpr double kTextHeight = 15;  // of a line of text in a chart
// An estimate, since the font of the page is not known.
double text_width(std::string_view utf8);

enum class Anchor { start, middle, end };

// One drawing, `width` x `height` units that are pixels on a page of the usual size. Texts are escaped here.
class Svg {
 public:
  // `id` is unique on the page; `title` and `description` are for screen readers.
  Svg(double width, double height, const std::string& id, const std::string& title, const std::string& description);

  void line(double x1, double y1, double x2, double y2, const std::string& classes, const std::string& more = "");
  void path(const std::vector<std::pair<double, double>>& points, const std::string& classes,
            const std::string& more = "");
  void rect(double x, double y, double width, double height, const std::string& classes);
  void text(double x, double y, const std::string& text, Anchor anchor = Anchor::start,
            const std::string& classes = "");
  // In the middle of (x, y), turned by `degrees`.
  void turned_text(double x, double y, const std::string& text, double degrees, const std::string& classes);
  // The mark of series `series`: five shapes and eight colours take turns.
  void mark(double x, double y, size_t series, bool filled = true);
  // The tooltip of the elements until `end_group`.
  void begin_group(const std::string& title);
  void end_group() { body_ += "</g>\n"; }

  std::string take() { return std::move(body_) + "</svg>"; }

 private:
  std::string body_;
};

std::string stroke_of(size_t series);  // "s3"
std::string fill_of(size_t series);    // "f3"

// From values to pixels.
class Scale {
 public:
  // Spans all finite values (above 0 for a logarithmic one), out to round ones; a linear one begins at 0.
  Scale(const std::vector<double>& values, bool logarithmic, double from, double to);

  double operator()(double v) const;
  std::vector<double> ticks() const;
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  bool log_;
  double from_, to_;
  double low_ = 0, high_ = 1;
};

// Whether values that differ so much are better read on a logarithmic scale.
bool wants_log(const std::vector<double>& values);

// Moves labels that are wanted at these heights apart, at least `gap`, within low..high. Keeps their order.
std::vector<double> spread(const std::vector<double>& wanted, double gap, double low, double high);

}  // namespace switchyard::bench
