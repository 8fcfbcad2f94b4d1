// SPDX-License-Identifier: Apache-2.0
// How well counts fit a distribution.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace switchyard {

// How many standard deviations a chi-square statistic lies above its mean (Wilson and Hilferty 1931).
inline double deviations(double chi_square, double freedom) {
  const double scale = 2.0 / (9.0 * freedom);
  return (std::cbrt(chi_square / freedom) - (1 - scale)) / std::sqrt(scale);
}

// Of counts against probabilities; ids expected less than 10 times are taken together.
inline double fit(const std::vector<uint64_t>& counts, const std::vector<double>& probability) {
  const double n = static_cast<double>(std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
  double chi_square = 0, rare_expected = 0, rare_counted = 0;
  int cells = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = probability[i] * n, counted = static_cast<double>(counts[i]);
    if (expected < 10) {
      rare_expected += expected;
      rare_counted += counted;
      continue;
    }
    chi_square += (counted - expected) * (counted - expected) / expected;
    ++cells;
  }
  if (rare_expected >= 10) {
    chi_square += (rare_counted - rare_expected) * (rare_counted - rare_expected) / rare_expected;
    ++cells;
  } else {
    EXPECT_LE(rare_counted, rare_expected + 6 * std::sqrt(rare_expected) + 3);
  }
  return deviations(chi_square, std::max(1, cells - 1));
}

}  // namespace switchyard
