// SPDX-License-Identifier: Apache-2.0
// Documents as Markdown, as GitHub shows it.
#include <fmt/format.h>

#include "bench/grid.h"
#include "bench/text.h"

namespace switchyard::bench {
namespace {

std::string table_md(const Grid& grid) {
  std::string out = "|", rule = "|";
  for (const Grid::Column& c : grid.columns) {
    out += fmt::format(" {} |", escape_md(c.name));
    rule += c.number ? "---:|" : "---|";
  }
  out += '\n' + rule + '\n';
  for (const Grid::Row& row : grid.rows) {
    out += '|';
    for (size_t i = 0; i < grid.columns.size(); ++i) {
      const std::string text = i < row.cells.size() ? escape_md(row.cells[i].text) : "";
      const bool loud = i < row.cells.size() && (row.cells[i].tone == Tone::good || row.cells[i].tone == Tone::bad);
      out += text.empty() ? " |" : loud ? fmt::format(" **{}** |", text) : fmt::format(" {} |", text);
    }
    out += '\n';
  }
  return out;
}

}  // namespace

std::string md_of(const Document& document) {
  std::string out = "# " + escape_md(document.title) + "\n\n";
  for (const auto& [name, value] : document.facts) {
    out += fmt::format("- {}: {}\n", escape_md(name), escape_md(value));
  }
  for (const std::string& w : document.warnings) out += "- **warning**: " + escape_md(w) + "\n";
  for (const Grid& grid : document.grids) {
    out += fmt::format("\n## {}\n\n{}", escape_md(grid.title), table_md(grid));
    if (!grid.note.empty()) out += '\n' + escape_md(grid.note) + '\n';
  }
  return out;
}

}  // namespace switchyard::bench
