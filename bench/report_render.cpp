// SPDX-License-Identifier: Apache-2.0
#include "bench/report_render.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "bench/report_grids.h"

namespace switchyard::bench {
namespace {

constexpr const char* kFormats[] = {"table", "json", "csv", "md", "html"};

}  // namespace

Result<ReportFormat> parse_report_format(const std::string& name) {
  const auto found = std::find(std::begin(kFormats), std::end(kFormats), name);
  if (found == std::end(kFormats)) {
    return error(Code::usage, "there is no format '{}'; known: {}", name, fmt::join(kFormats, ", "));
  }
  return static_cast<ReportFormat>(found - std::begin(kFormats));
}

RenderOptions output_options() {
  RenderOptions options;
  if (::isatty(STDOUT_FILENO) != 1) return options;
  const char* no_colour = std::getenv("NO_COLOR");
  options.colour = no_colour == nullptr || *no_colour == '\0';
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0) {
    options.width = std::clamp<uint32_t>(size.ws_col, 100, 200);
  }
  return options;
}

std::string render(const Report& report, ReportFormat format, const RenderOptions& options) {
  switch (format) {
    case ReportFormat::json:
      return to_json(report).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
    case ReportFormat::csv:
      return render_csv(report);
    case ReportFormat::md:
      return render_md(report);
    case ReportFormat::html:
      return render_html(report);
    default:
      return render_table(report, options);
  }
}

std::string render_table(const Report& report, const RenderOptions& options) {
  return table_of(document_of(report), options);
}
std::string render_md(const Report& report) { return md_of(document_of(report)); }

}  // namespace switchyard::bench
