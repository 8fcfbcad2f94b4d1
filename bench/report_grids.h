// SPDX-License-Identifier: Apache-2.0
// The tables of a report.
#pragma once

#include "bench/grid.h"
#include "bench/report.h"

namespace switchyard::bench {

Document document_of(const Report& report);
// The tables below those of speed, some maybe empty.
std::vector<Grid> detail_grids(const Report& report);

std::string or_dash(const std::string& text);
std::string failure_text(State state, const std::string& reason);
bool over_budget(const OpError& e);
// The largest error, as a share of its budget; NULL: none was measured.
const OpError* worst_op(const Correctness& correctness);

std::string cell_name(Metric metric, uint32_t at);  // "prefill 512", "decode at 1024", "8 at a time"
// Of a comparison, in plain words: "34.2x faster (32.9–38.6)", "3.1% slower (2.0 to 4.2%)".
std::string verdict_words(Verdict verdict, double ratio, double low, double high);
Tone tone_of(Verdict verdict);
// Metrics and places that any configuration has, in order.
std::vector<std::pair<Metric, uint32_t>> places_of(const Report& report);
const Comparison* comparison_of(const Report& report, const std::string& other, Metric metric, uint32_t at);

}  // namespace switchyard::bench
