// SPDX-License-Identifier: Apache-2.0
// A report as a page: its charts, then its tables.
#include "bench/charts.h"
#include "bench/report_grids.h"

namespace switchyard::bench {

std::string render_html(const Report& report) {
  std::vector<Figure> figures = {rate_chart(report, Metric::decode),
                                 rate_chart(report, Metric::prefill),
                                 rate_chart(report, Metric::serving),
                                 roofline_chart(report),
                                 ratio_chart(report),
                                 latency_chart(report),
                                 kernel_chart(report)};
  std::erase_if(figures, [](const Figure& f) { return f.svg.empty(); });
  return html_of(document_of(report), figures);
}

}  // namespace switchyard::bench
