// SPDX-License-Identifier: Apache-2.0
// The charts of a report, as inline SVG for its page. Each is left out (no SVG) where it has nothing to show. A
// configuration has one colour and one mark in all of them; values are written at the marks, and a pointer that rests
// on one shows the interval.
#pragma once

#include "bench/grid.h"
#include "bench/report.h"

namespace switchyard::bench {

Figure rate_chart(const Report& report, Metric metric);  // tokens per second, with intervals
Figure ratio_chart(const Report& report);                // of the comparisons
Figure kernel_chart(const Report& report);               // shares of the kernels in a step
Figure roofline_chart(const Report& report);
Figure latency_chart(const Report& report);  // percentiles of serving

}  // namespace switchyard::bench
