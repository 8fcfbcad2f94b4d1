// SPDX-License-Identifier: Apache-2.0
// Documents for a terminal.
#include <fmt/format.h>

#include <algorithm>

#include "bench/grid.h"
#include "bench/text.h"

namespace switchyard::bench {
namespace {

constexpr size_t kGap = 2;        // between columns
constexpr size_t kNarrowest = 8;  // that a column of text is cut to

const char* begin_of(Tone tone) {
  switch (tone) {
    case Tone::good:
      return "\033[32m";
    case Tone::bad:
      return "\033[31m";
    case Tone::faint:
      return "\033[2m";
    default:
      return "";
  }
}

// `text` in lines of `width`; further lines are indented by `indent` spaces.
std::string wrapped(const std::string& text, size_t indent, size_t width) {
  std::string out;
  size_t column = indent;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    const bool first = column == indent;
    if (!first && column + 1 + characters(word) > width) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += characters(word);
    at = end + 1;
  }
  return out;
}

// A table in the making: the columns that it shows, and how wide they are.
class TableWriter {
 public:
  TableWriter(const Grid& grid, const RenderOptions& options) : grid_(grid), options_(options) {
    for (size_t i = 0; i < grid.columns.size(); ++i) {
      shown_.push_back(i);
      widths_.push_back(natural_width(i));
    }
    fit();
  }

  std::string write() {
    std::vector<GridCell> head;
    for (const Grid::Column& c : grid_.columns) head.push_back({c.name, Tone::faint});
    const bool named = std::any_of(head.begin(), head.end(), [](const GridCell& c) { return !c.text.empty(); });
    std::string out = named ? line_of(head) : "";
    for (const Grid::Row& row : grid_.rows) {
      if (row.group && &row != &grid_.rows.front()) out += '\n';
      out += line_of(row.cells);
    }
    return out;
  }

 private:
  bool spans(const std::vector<GridCell>& cells, size_t i) const {
    return i + 1 == cells.size() && cells.size() < grid_.columns.size();
  }

  size_t natural_width(size_t i) const {
    size_t width = characters(grid_.columns[i].name);
    for (const Grid::Row& row : grid_.rows) {
      if (i < row.cells.size() && !spans(row.cells, i)) {
        width = std::max(width, characters(one_line(row.cells[i].text)));
      }
    }
    return width;
  }

  size_t total() const {
    size_t sum = 0;
    for (const size_t i : shown_) sum += widths_[i] + kGap;
    return sum - std::min(sum, kGap);
  }

  void fit() {
    for (size_t k = shown_.size(); k-- > 0 && total() > options_.width;) {
      if (grid_.columns[shown_[k]].spare) shown_.erase(shown_.begin() + static_cast<ptrdiff_t>(k));
    }
    while (total() > options_.width) {
      size_t* widest = nullptr;
      for (const size_t i : shown_) {
        if (!grid_.columns[i].number && (widest == nullptr || widths_[i] > *widest)) widest = &widths_[i];
      }
      if (widest == nullptr || *widest <= kNarrowest) break;
      --*widest;
    }
  }

  std::string line_of(const std::vector<GridCell>& cells) const {
    std::string line;
    size_t column = 0;
    for (const size_t i : shown_) {
      if (i >= cells.size()) break;
      const bool last = spans(cells, i);
      const size_t left = options_.width > column ? options_.width - column : 0;
      const size_t width = last ? std::max(left, kNarrowest) : widths_[i];
      const std::string text = cut(one_line(cells[i].text), width);
      const std::string space(last ? 0 : width - std::min(width, characters(text)), ' ');
      const bool coloured = options_.colour && cells[i].tone != Tone::plain && !text.empty();
      const std::string shown = coloured ? begin_of(cells[i].tone) + text + "\033[0m" : text;
      if (column != 0) line += std::string(kGap, ' ');
      line += grid_.columns[i].number && !last ? space + shown : shown + space;
      column += width + kGap;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line + '\n';
  }

  const Grid& grid_;
  const RenderOptions& options_;
  std::vector<size_t> shown_, widths_;  // indices of columns; widths of all
};

}  // namespace

std::string table_of(const Document& document, const RenderOptions& options) {
  std::string out;
  size_t label = 0;
  for (const auto& [name, value] : document.facts) label = std::max(label, characters(name));
  for (const auto& [name, value] : document.facts) {
    out += fmt::format("{:<{}}  {}\n", name, label, wrapped(one_line(value), label + kGap, options.width));
  }
  for (const std::string& w : document.warnings) {
    const std::string text = "warning: " + one_line(w);
    out += (options.colour ? "\033[33m" + text + "\033[0m" : text) + "\n";
  }
  for (const Grid& grid : document.grids) {
    out += '\n' + (options.colour ? "\033[1m" + grid.title + "\033[0m" : grid.title) + '\n';
    out += TableWriter(grid, options).write();
    if (!grid.note.empty()) out += wrapped(one_line(grid.note), 0, options.width) + '\n';
  }
  return out;
}

}  // namespace switchyard::bench
