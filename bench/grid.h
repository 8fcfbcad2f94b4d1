// SPDX-License-Identifier: Apache-2.0
// The contents of a report or a comparison, independent of the format: facts, and tables of text with tones. Text is
// unescaped; each writer escapes it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/report_render.h"

namespace switchyard::bench {

enum class Tone { plain, good, bad, faint };

struct GridCell {
  std::string text;
  Tone tone = Tone::plain;
};

struct Grid {
  struct Column {
    std::string name;
    bool number = false;  // to the right
    bool spare = false;   // dropped in a narrow terminal; the last such column first
  };
  // With fewer cells than columns the last one takes the rest of the row: a reason.
  struct Row {
    std::vector<GridCell> cells;
    bool group = false;  // begins one: a line above
  };
  std::string title, note;
  std::vector<Column> columns;
  std::vector<Row> rows;
};

struct Document {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<std::string> warnings;
  std::vector<Grid> grids;
};

// A figure as inline SVG, with its meaning in a line.
struct Figure {
  std::string title, caption, svg;
};

// For a terminal. Where a table is wider than `options.width`, spare columns are left out, and then long texts cut.
std::string table_of(const Document& document, const RenderOptions& options);
std::string md_of(const Document& document);
// A whole page, figures before the tables.
std::string html_of(const Document& document, const std::vector<Figure>& figures);

}  // namespace switchyard::bench
