// SPDX-License-Identifier: Apache-2.0
// DraftCounts: drafts and those that were accepted, by their place among a step's drafts of one sequence.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

namespace switchyard {

struct DraftCounts {
  static constexpr uint32_t kPlaces = 32;  // later ones count at the last

  uint64_t steps = 0;  // of a sequence, with drafts
  std::array<uint64_t, kPlaces> drafted{}, accepted{};

  void add(uint32_t drafts, uint32_t kept) {
    ++steps;
    for (uint32_t i = 0; i < drafts; ++i) {
      const uint32_t place = std::min(i, kPlaces - 1);
      ++drafted[place];
      accepted[place] += i < kept ? 1 : 0;
    }
  }
  void add(const DraftCounts& other) {
    steps += other.steps;
    for (uint32_t i = 0; i < kPlaces; ++i) drafted[i] += other.drafted[i], accepted[i] += other.accepted[i];
  }
  uint64_t all_drafted() const { return std::accumulate(drafted.begin(), drafted.end(), uint64_t{0}); }
  uint64_t all_accepted() const { return std::accumulate(accepted.begin(), accepted.end(), uint64_t{0}); }
  // The share of the drafts at a place that were accepted; 0 where there were none.
  double share(uint32_t place) const {
    return drafted[place] == 0 ? 0 : static_cast<double>(accepted[place]) / static_cast<double>(drafted[place]);
  }
  uint32_t places() const {  // that had drafts
    uint32_t n = kPlaces;
    while (n > 0 && drafted[n - 1] == 0) --n;
    return n;
  }
};

}  // namespace switchyard
