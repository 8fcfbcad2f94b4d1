// SPDX-License-Identifier: Apache-2.0
// Documents as one page of HTML: no outside resource, no script; light, dark and on paper.
#include <fmt/format.h>

#include "bench/grid.h"
#include "bench/text.h"

namespace switchyard::bench {
namespace {

// Colours of series keep 3:1 against their background, those of text 4.5:1; series differ in their marks, too.
constexpr const char* kStyle = R"(
:root { color-scheme: light dark;
  --page: #ffffff; --card: #f7f8fa; --ink: #1b1f24; --soft: #57606a; --line: #d5dae0; --grid: #e6e9ed;
  --good: #1a7f37; --bad: #b42318;
  --c0: #1f6feb; --c1: #b35900; --c2: #1a7f37; --c3: #8250df; --c4: #bf3989; --c5: #0b7285; --c6: #8a6d00;
  --c7: #6e7781; }
@media (prefers-color-scheme: dark) { :root {
  --page: #0f1318; --card: #171c23; --ink: #e6e9ed; --soft: #9aa4af; --line: #333b45; --grid: #262d36;
  --good: #4cc26a; --bad: #ff8a80;
  --c0: #6cb0ff; --c1: #ffa657; --c2: #56d364; --c3: #c297ff; --c4: #ff8ac4; --c5: #4dd0e1; --c6: #e3c04b;
  --c7: #a5afba; } }
@media print { :root { color-scheme: light;
  --page: #ffffff; --card: #ffffff; --ink: #000000; --soft: #444444; --line: #bbbbbb; --grid: #dddddd;
  --good: #1a7f37; --bad: #b42318;
  --c0: #1f6feb; --c1: #b35900; --c2: #1a7f37; --c3: #8250df; --c4: #bf3989; --c5: #0b7285; --c6: #8a6d00;
  --c7: #6e7781; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 1320px; margin: 0 auto; padding: 24px 20px 48px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 12px; }
h2 { font-size: 18px; margin: 36px 0 8px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 0; font-size: 14px; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.warning { border-left: 4px solid var(--bad); padding: 4px 12px; margin: 8px 0; background: var(--card); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 540px), 1fr)); gap: 16px;
  margin-top: 24px; }
figure { margin: 0; padding: 14px 14px 10px; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; break-inside: avoid; }
figure h2 { margin: 0 0 4px; font-size: 16px; }
figcaption { color: var(--soft); font-size: 13px; margin-top: 6px; }
figure:last-child:nth-child(odd) { grid-column: 1 / -1; }
figure:last-child:nth-child(odd) svg { max-width: 640px; }
.scroll { overflow-x: auto; }
figure svg { display: block; width: 100%; min-width: 400px; height: auto;
  font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th { text-align: left; color: var(--soft); font-weight: 600; border-bottom: 1px solid var(--line); }
th, td { padding: 3px 14px 3px 0; white-space: nowrap; vertical-align: top; }
td.span { white-space: normal; min-width: 20em; }
tr.group td { border-top: 1px solid var(--grid); padding-top: 6px; }
.number { text-align: right; }
.good { color: var(--good); } .bad { color: var(--bad); } .faint { color: var(--soft); }
.note { color: var(--soft); font-size: 13px; max-width: 75em; margin: 6px 0 0; }
svg text { fill: var(--ink); } svg .soft { fill: var(--soft); } svg .axis { stroke: var(--soft); fill: none; }
svg .grid { stroke: var(--grid); fill: none; } svg .roof { stroke: var(--soft); fill: none; stroke-width: 1.5; }
svg .halo { paint-order: stroke; stroke: var(--card); stroke-width: 4px; stroke-linejoin: round; }
svg .good { fill: var(--good); } svg .bad { fill: var(--bad); } svg .head { font-weight: 600; }
svg .hollow { fill: var(--card); stroke-width: 2; }
svg .on { fill: var(--page); font-weight: 600; }
@media print { main { max-width: none; padding: 0; } body { font-size: 11px; } table { font-size: 9.5px; }
  .figures { grid-template-columns: 1fr 1fr; } figure svg { min-width: 0; } .scroll { overflow: visible; }
  th, td { padding-right: 7px; } }
)";

// The colours of series, as `s0` to `s7` for strokes and `f0` to `f7` for areas.
std::string series_style() {
  std::string out;
  for (int i = 0; i < 8; ++i) {
    out += fmt::format("svg .s{0} {{ stroke: var(--c{0}); fill: none; }} svg .f{0} {{ fill: var(--c{0}); }}\n", i);
  }
  return out;
}

const char* class_of(Tone tone) {
  switch (tone) {
    case Tone::good:
      return "good";
    case Tone::bad:
      return "bad";
    case Tone::faint:
      return "faint";
    default:
      return "";
  }
}

std::string cell_html(const Grid& grid, const Grid::Row& row, size_t i) {
  const bool last = i + 1 == row.cells.size() && row.cells.size() < grid.columns.size();
  std::string classes = class_of(row.cells[i].tone);
  if (last) classes += " span";
  if (grid.columns[i].number && !last) classes += " number";
  const std::string span = last ? fmt::format(" colspan=\"{}\"", grid.columns.size() - i) : "";
  const std::string kind = classes.empty() ? "" : fmt::format(" class=\"{}\"", classes);
  return fmt::format("<td{}{}>{}</td>", kind, span, escape_html(row.cells[i].text));
}

std::string table_html(const Grid& grid) {
  std::string out =
      fmt::format("<section>\n<h2>{}</h2>\n<div class=\"scroll\"><table>\n<thead><tr>", escape_html(grid.title));
  for (const Grid::Column& c : grid.columns) {
    out += fmt::format("<th scope=\"col\"{}>{}</th>", c.number ? " class=\"number\"" : "", escape_html(c.name));
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const Grid::Row& row : grid.rows) {
    out += row.group ? "<tr class=\"group\">" : "<tr>";
    for (size_t i = 0; i < row.cells.size() && i < grid.columns.size(); ++i) out += cell_html(grid, row, i);
    out += "</tr>\n";
  }
  out += "</tbody>\n</table></div>\n";
  if (!grid.note.empty()) out += fmt::format("<p class=\"note\">{}</p>\n", escape_html(grid.note));
  return out + "</section>\n";
}

}  // namespace

std::string html_of(const Document& document, const std::vector<Figure>& figures) {
  const std::string title = escape_html(document.title);
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n"
      "<style>{}{}</style>\n</head>\n<body>\n<main>\n<h1>{}</h1>\n<dl>\n",
      title, kStyle, series_style(), title);
  for (const auto& [name, value] : document.facts) {
    out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape_html(name), escape_html(value));
  }
  out += "</dl>\n";
  for (const std::string& w : document.warnings) out += fmt::format("<p class=\"warning\">{}</p>\n", escape_html(w));
  if (!figures.empty()) out += "<div class=\"figures\">\n";
  for (const Figure& f : figures) {
    out +=
        fmt::format("<figure>\n<h2>{}</h2>\n<div class=\"scroll\">{}</div>\n<figcaption>{}</figcaption>\n</figure>\n",
                    escape_html(f.title), f.svg, escape_html(f.caption));
  }
  if (!figures.empty()) out += "</div>\n";
  for (const Grid& grid : document.grids) out += table_html(grid);
  return out + "</main>\n</body>\n</html>\n";
}

}  // namespace switchyard::bench
