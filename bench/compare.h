// SPDX-License-Identifier: Apache-2.0
// Two reports of the same benchmark, an old one and a new one: what became slower, what became wrong, what is missing.
#pragma once

#include <string>
#include <vector>

#include "bench/report.h"
#include "bench/report_render.h"

namespace switchyard::bench {

// A cell that both reports measured.
struct RateChange {
  std::string configuration;
  Metric metric = Metric::prefill;
  uint32_t at = 0;
  double before = 0, after = 0;         // tokens per second
  double ratio = 1, low = 1, high = 1;  // after / before, with a 99% interval
  Verdict verdict = Verdict::no_difference;
  bool regressed = false;
};

// Anything else that changed: correctness, and cells that only one of the reports could measure.
struct Change {
  std::string configuration, what, before, after;
  bool regressed = false;
};

struct ReportChanges {
  double threshold = 0;
  std::vector<RateChange> rates;
  std::vector<Change> others;
  std::vector<std::string> missing;   // from one of the two, or with too few samples
  std::vector<std::string> warnings;  // why the two may not be comparable: another machine, model, setting
  size_t regressions() const;
};

// Configurations are matched by name, cells by metric and place. Intervals are by a bootstrap of each report's own
// samples, unpaired, with a fixed seed; a verdict needs the whole interval on one side of 1. Regressed are: a rate that
// is slower by that verdict and whose median lost more than `threshold`; a KL that grew by half and by 1e-6, or became
// NaN; a top-1 agreement that lost more than one position; an operation whose worst row's error, with the same kernel,
// grew by half and by 1e-6, or became NaN, or newly exceeds a budget if the report has one; a cell that was measured
// before, and now failed. Cells need five samples in each report.
ReportChanges compare_reports(const Report& before, const Report& after, double threshold);

// In the formats of reports. The page has the chart of the ratios.
std::string render_changes(const Report& before, const Report& after, const ReportChanges& changes, ReportFormat format,
                           const RenderOptions& options);

}  // namespace switchyard::bench
