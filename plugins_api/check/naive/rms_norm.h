// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace switchyard::check::naive {

// x * rsqrt(mean(x^2) + eps), without the weight.
template <class T>
std::vector<double> normed(const T* x, uint64_t n, double eps) {
  double squares = 0;
  for (uint64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  std::vector<double> y(n);
  for (uint64_t i = 0; i < n; ++i) y[i] = x[i] / std::sqrt(squares / static_cast<double>(n) + eps);
  return y;
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double silu(double x) { return x / (1 + std::exp(-x)); }

}  // namespace switchyard::check::naive
