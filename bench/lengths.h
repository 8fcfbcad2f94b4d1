// SPDX-License-Identifier: Apache-2.0
// Drawn lengths of prompts and answers. Real ones span orders of magnitude and short ones are common, so the logarithm
// is uniform: floor(exp(u)) with u uniform between ln(least) and ln(most + 1).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

namespace switchyard::bench {

// From 0 to below 1; the same on every machine, which std::uniform_real_distribution does not promise.
inline double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

inline uint32_t log_uniform(std::mt19937_64& random, uint32_t least, uint32_t most) {
  const double low = std::log(least), high = std::log(most + 1.0);
  return std::clamp(static_cast<uint32_t>(std::exp(low + uniform(random) * (high - low))), least, most);
}

}  // namespace switchyard::bench
