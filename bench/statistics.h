// SPDX-License-Identifier: Apache-2.0
// Medians of samples, ratios of pairs, and 99% intervals around them.
//
// Samples come in turns. The samples of a turn share what else the machine did at that time, and neighbouring turns may
// share it, too. So intervals are by block bootstrap: they draw whole runs of neighbouring turns again, never single
// samples. The draws have a fixed seed: the same samples give the same interval.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/report.h"
#include "core/base/median.h"

namespace switchyard::bench {

// The samples of one configuration in one cell. Every turn begins with the same state and does the same steps.
struct Turn {
  uint32_t sitting = 0;  // turns of one sitting ran in the same process
  uint32_t round = 0;    // of that sitting; turns of several configurations in one round ran one after another
  std::vector<double> seconds;
};

// The median of all samples, in seconds, with its interval.
Interval median_interval(std::span<const Turn> turns);

// Seconds per `tokens` as tokens per second.
Interval rate_of(const Interval& seconds, double tokens);

// Rates closer than this are never called different: processes of one program that are started again differ by as much,
// by where their memory happens to lie.
constexpr double kSameRate = 0.01;

// Of fewer samples, chance alone often puts all of one above the other's.
constexpr size_t kFewestSamples = 5;

// The share of draws on either side of a 99% interval.
constexpr double kOutside = 0.005;

struct Ratio {
  double ratio = 1, low = 1, high = 1;  // of the rates, `other` over `base`
  uint64_t pairs = 0;
  Verdict verdict() const;
};

// Pairs the turns of one sitting and round: each gives the ratio of its medians, and the result is the median of those.
// The interval also covers the median of each sitting; if there are eight or more, whole sittings are drawn instead.
// `base_tokens` and `other_tokens`: tokens per sample. With fewer than two pairs there is no comparison.
Ratio ratio_of(std::span<const Turn> base, std::span<const Turn> other, double base_tokens, double other_tokens);

}  // namespace switchyard::bench
