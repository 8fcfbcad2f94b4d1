// SPDX-License-Identifier: Apache-2.0
#include "core/draft/acceptance.h"

#include <cmath>

namespace switchyard {
namespace {

constexpr double kPrior = 4;        // measurements that what is expected counts as
constexpr double kForgets = 0.998;  // of a place's measurements, at a step at which nothing is tried

}  // namespace

void Acceptance::start(double expected) {
  expected_.fill(expected);
  seen_.fill(0);
  weight_.fill(0);
  update();
}

void Acceptance::start(const Acceptance& others) {
  start(0);
  expected_ = others.share_;
  update();
}

void Acceptance::measured(uint32_t kept, bool missed) {
  for (uint32_t i = 0; i < std::min(kept + (missed ? 1 : 0), kPlaces); ++i) {
    weight_[i] = std::min(weight_[i] + 1, window_);
    seen_[i] += ((i < kept ? 1 : 0) - seen_[i]) / weight_[i];
  }
  update();
}

void Acceptance::passed(uint32_t steps) {
  const double kept = std::pow(kForgets, steps);
  for (double& w : weight_) w *= kept;
  update();
}

// A place is as much better or worse than expected as the one before it, until it was measured itself.
void Acceptance::update() {
  double better = 1;
  for (uint32_t i = 0; i < kPlaces; ++i) {
    const double expected = std::min(expected_[i] * better, 1.0);
    share_[i] = (weight_[i] * seen_[i] + kPrior * expected) / (weight_[i] + kPrior);
    if (expected_[i] > 0) better = share_[i] / expected_[i];
  }
}

double Acceptance::kept(uint32_t drafts) const {
  double expected = 0, all = 1;
  for (uint32_t i = 0; i < drafts; ++i) expected += all *= share(i);
  return expected;
}

}  // namespace switchyard
