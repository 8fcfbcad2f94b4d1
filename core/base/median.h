// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace switchyard {

// Of an even count, the mean of the two in the middle; 0 of nothing.
inline double median_of(std::span<const double> values) {
  if (values.empty()) return 0;
  std::vector<double> v(values.begin(), values.end());
  const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return v.size() % 2 == 1 ? *middle : (*middle + *std::max_element(v.begin(), middle)) / 2;
}

}  // namespace switchyard
