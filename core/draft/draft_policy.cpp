// SPDX-License-Identifier: Apache-2.0
#include "core/draft/draft_policy.h"

#include <algorithm>
#include <bit>

namespace switchyard {
namespace {

constexpr double kWeight = 0.125;      // of a new measurement
constexpr double kGrowth = 1.4;        // of the cost with twice the rows, until it was measured
constexpr double kLostSteps = 1;       // plain steps that may be lost at first
constexpr double kLostShare = 0.01;    // and this share of the time
constexpr double kKeptSteps = 64;      // of the time saved, that may be lost again
constexpr uint32_t kPlainEvery = 128;  // steps with drafts until a plain one is measured again
constexpr double kOutlier = 4;         // times the cost so far: something else ran

}  // namespace

void Acceptance::measured(uint32_t kept, bool missed) {
  for (uint32_t i = 0; i < kept; ++i) share_ += kWeight * (1 - share_);
  if (missed) share_ -= kWeight * 2 * share_;
}

size_t DraftPolicy::size_of(uint32_t rows) {
  return std::min<size_t>(std::bit_width(std::max(rows, 1u) - 1), kSizes - 1);
}

double DraftPolicy::cost_ns(uint32_t rows, uint32_t seqs) const {
  const size_t size = size_of(rows);
  const Costs& own = rows > seqs ? wide_ : plain_;
  if (own[size] > 0) return own[size];
  double cost = 0;
  for (size_t i = 0; i <= size; ++i) cost = std::max(cost * kGrowth, own[i] > 0 ? own[i] : plain_[i]);
  return cost;
}

void DraftPolicy::stepped(uint32_t rows, uint32_t seqs, uint32_t tokens, uint64_t ns) {
  const auto took = static_cast<double>(ns);
  const double plain = cost_ns(seqs, seqs);
  double& cost = (rows > seqs ? wide_ : plain_)[size_of(rows)];
  if (cost == 0) cost = took;
  cost += kWeight * (std::min(took, kOutlier * cost) - cost);
  spent_ += took;
  since_plain_ = rows > seqs ? since_plain_ + 1 : 0;
  if (rows == seqs) return;
  planned_[size_of(rows)] = true;
  if (plain == 0) return;
  balance_ = std::min(balance_ + plain * tokens / seqs - took, kKeptSteps * plain);
}

void DraftPolicy::stepped_first(uint32_t rows, uint32_t seqs, uint32_t tokens, uint64_t ns) {
  const auto took = static_cast<double>(ns);
  const double planning = std::max(took - cost_ns(rows, seqs), 0.0), plain = cost_ns(seqs, seqs);
  plan_ns_ = plan_ns_ == 0 ? planning : (plan_ns_ + planning) / 2;
  spent_ += took;
  if (rows == seqs) return;
  planned_[size_of(rows)] = true;
  balance_ += plain * tokens / seqs - took;
}

uint32_t DraftPolicy::choose(uint32_t rows, uint32_t seqs, double tokens, uint32_t proposed, double share,
                             bool feeds_again) const {
  const double plain = cost_ns(seqs, seqs), now = cost_ns(rows, seqs);
  if (plain == 0 || since_plain_ > kPlainEvery) return 0;
  const double may_lose = balance_ + kLostSteps * plain + kLostShare * spent_;
  double best = tokens / now, expected = 0, all = share;  // all: that every draft is kept
  uint32_t chosen = 0;
  for (uint32_t k = 1; k <= proposed; ++k, all *= share) {
    expected += all;
    const bool whole = k == proposed || std::has_single_bit(rows + k);  // sizes between cost as much as the next
    double cost = cost_ns(rows + k, seqs);
    const double planning = planned_[size_of(rows + k)] ? 0 : plan_ns_;
    if (!whole || cost - now + planning > may_lose) continue;
    if (feeds_again) cost += (1 - all) * (cost_ns(rows + 1 + static_cast<uint32_t>(expected), seqs) - plain);
    if ((tokens + expected) / cost <= best) continue;
    best = (tokens + expected) / cost;
    chosen = k;
  }
  return chosen;
}

}  // namespace switchyard
