// SPDX-License-Identifier: Apache-2.0
// A report in readable form: a table for a terminal, Markdown, CSV, JSON, or a page of HTML with charts.
//
// The contents of a report come from outside: names and reasons are escaped for each format, and control characters are
// dropped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/report.h"
#include "core/base/status.h"

namespace switchyard::bench {

enum class ReportFormat { table, json, csv, md, html };

// Errors: usage, naming the known ones.
Result<ReportFormat> parse_report_format(const std::string& name);

struct RenderOptions {
  bool colour = false;   // escape sequences in tables
  uint32_t width = 140;  // columns of a table, at least 100
};

// For standard output: colour where it is a terminal and NO_COLOR is not set, and that terminal's width.
RenderOptions output_options();

// Ends with a newline.
std::string render(const Report& report, ReportFormat format, const RenderOptions& options = {});

// The parts of `render`. CSV has a line per cell, and one per configuration without cells.
std::string render_table(const Report& report, const RenderOptions& options);
std::string render_csv(const Report& report);
std::string render_md(const Report& report);
// One page without outside resources or scripts: charts as inline SVG, for light and dark screens and for paper.
std::string render_html(const Report& report);

}  // namespace switchyard::bench
