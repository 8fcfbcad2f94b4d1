// SPDX-License-Identifier: Apache-2.0
// Where one kernel of an operation overtakes another as the rows of a step grow.
#pragma once

#include <string>
#include <vector>

#include "bench/ops.h"

namespace switchyard::bench {

// Bounds of the median that hold with 99%: order statistics, so that nothing is assumed of how times scatter. Of fewer
// than eight samples they are the least and the greatest, which hold with less.
struct MedianBounds {
  double low = 0, high = 0;
};
MedianBounds median_bounds(const Samples& samples);

// From one row count to the next that was measured, another kernel of the device is the fastest.
struct Crossover {
  std::string device, op, shape;
  std::string from, to;              // kernels
  uint32_t rows_from = 0, rows = 0;  // `from` is still the fastest at rows_from, and `to` at rows
  double about = 0;                  // where the lines between the measured times cross
  bool clear = false;    // at both ends the bounds of the two medians are apart, of samples that are not few
  bool few = false;      // at one of the ends a kernel has fewer than five samples
  uint32_t planner = 0;  // the first row count at which the planner takes `to`; 0: at none
};
std::vector<Crossover> crossovers(const std::vector<OpTime>& times);

}  // namespace switchyard::bench
