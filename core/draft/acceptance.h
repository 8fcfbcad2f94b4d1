// SPDX-License-Identifier: Apache-2.0
// Acceptance: the shares of drafts that are kept, by their place among a step's drafts of one sequence.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace switchyard {

class Acceptance {
 public:
  static constexpr uint32_t kPlaces = 32;  // those after the last are like it
  static constexpr double kOfASequence = 24, kOfAllSequences = 128;

  // `window`: measurements of a place that count; earlier ones fade.
  explicit Acceptance(double window = kOfASequence) : window_(window) {}

  // What is expected before anything was measured: of each place, or as it was with others.
  void start(double expected);
  void start(const Acceptance& others);
  // `kept` drafts of a step stood; `missed`: and the next one did not.
  void measured(uint32_t kept, bool missed);
  // Guesses were not tried, at so many steps: after many of them one is tried again.
  void passed(uint32_t steps = 1);
  // That the draft at `place` is kept, if all before it are.
  double share(uint32_t place) const { return share_[std::min(place, kPlaces - 1)]; }
  // How many of the first `drafts` are expected to be kept.
  double kept(uint32_t drafts) const;

 private:
  void update();

  double window_;
  std::array<double, kPlaces> expected_{}, seen_{}, weight_{}, share_{};
};

}  // namespace switchyard
