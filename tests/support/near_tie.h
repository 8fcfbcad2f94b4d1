// SPDX-License-Identifier: Apache-2.0
// ChainRow: what the sampling chain makes of one row of logits, and how near another token was to being drawn. By the
// rules of switchyard/sampling_math.h, with a sort; slow.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "core/sampling/sampler.h"

namespace switchyard {

class ChainRow {
 public:
  // `mask`: of allowed ids; empty: all are. `sampler` has counted the tokens before `position`.
  ChainRow(std::span<const float> logits, const Sampler& sampler, uint64_t position, std::span<const uint32_t> mask)
      : p_(sampler.params()), position_(position), z_(logits.size(), -kInfinity) {
    std::vector<float> biases(logits.size());
    for (const swy_logit_bias& b : sampler.biases()) biases[b.id] = b.bias;
    for (size_t id = 0; id < logits.size(); ++id) {
      if (!mask.empty() && (mask[id / 32] >> id % 32 & 1) == 0) continue;
      const uint32_t count = sampler.counts().empty() ? 0 : sampler.counts()[id];
      const float adjusted = swy_adjust(&p_, logits[id], count, biases[id]);
      z_[id] = greedy() ? adjusted : swy_scale(&p_, adjusted);
      order_.push_back(static_cast<int32_t>(id));
    }
    std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) { return z(a) != z(b) ? z(a) > z(b) : a < b; });
    rank_.resize(logits.size(), order_.size());
    for (size_t i = 0; i < order_.size(); ++i) rank_[static_cast<size_t>(order_[i])] = i;
    truncate();
  }

  // The adjusted logit, divided by the temperature; and with the noise.
  double z(int32_t id) const { return z_[static_cast<size_t>(id)]; }
  double score(int32_t id) const {
    const float z = z_[static_cast<size_t>(id)];
    return greedy() ? z : swy_add(z, swy_gumbel(p_.seed, position_, static_cast<uint32_t>(id)));
  }
  int32_t drawn() const {
    int32_t best = -1;
    for (size_t i = 0; i < kept_; ++i) {
      if (best < 0 || score(order_[i]) > score(best)) best = order_[i];
    }
    return best;
  }

  // How far the row is from drawing `other`: by how much the z of two ids must come closer, so that their order, or
  // that of an id and a limit of top-k, top-p or min-p, turns round. `other` must get within the limits, and whatever
  // would be drawn before it must fall behind it, or out of the limits. Where no z changes by more than d, rows that
  // draw different tokens have a gap of at most 2 d.
  double gap(int32_t other) const {
    double gap = std::max(0.0, outside(other));
    for (size_t i = 0; i < kept_; ++i) {
      const double ahead = score(order_[i]) - score(other);
      if (ahead > gap) gap = std::max(gap, std::min(ahead, -outside(order_[i])));
    }
    return gap;
  }
  // The largest difference of any z.
  double distance(const ChainRow& from) const {
    double most = 0;
    for (const int32_t id : order_) most = std::max(most, std::abs(z(id) - from.z(id)));
    return most;
  }

 private:
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
  bool greedy() const { return p_.inv_temperature == 0.0f; }

  void truncate() {
    kept_ = most_ = order_.size();
    if (greedy() || order_.empty()) return;
    if (p_.top_k > 0) kept_ = most_ = std::min(most_, static_cast<size_t>(p_.top_k));
    before_.assign(1, 0);
    for (size_t i = 0; i < most_; ++i) before_.push_back(before_.back() + swy_weight(z_of(i) - z_of(0)));
    if (p_.top_p_q15 < SWY_TOP_P_OFF) {
      const uint64_t need = swy_top_p_need(&p_, before_.back());
      kept_ = static_cast<size_t>(std::lower_bound(before_.begin(), before_.end(), need) - before_.begin());
    }
    while (kept_ > 1 && swy_weight(z_of(kept_ - 1) - z_of(0)) < p_.min_p_q30) --kept_;
  }

  // By how much an id is outside of what top-k, top-p and min-p leave; inside: below 0.
  double outside(int32_t id) const {
    if (greedy()) return -kInfinity;
    const size_t rank = rank_[static_cast<size_t>(id)];
    double most = -kInfinity;
    if (most_ < order_.size()) most = (rank < most_ ? z_of(most_) : z_of(most_ - 1)) - z(id);
    if (p_.top_p_q15 < SWY_TOP_P_OFF) most = std::max(most, outside_top_p(id, rank));
    if (p_.min_p_q30 > 0) most = std::max(most, z_of(0) + std::log(p_.min_p_q30 / 1073741824.0) - z(id));
    return most;
  }
  // Top-p keeps an id where the share c of those before it is below p. If their z fall by d / 2 and the others rise by
  // as much, ln(c / (1 - c)) falls by d; and ids whose z are at most d apart may change places.
  double outside_top_p(int32_t id, size_t rank) const {
    const double p = p_.top_p_q15 / 32768.0, limit = std::log(p) - std::log1p(-p);
    const auto above = [&](uint64_t before) {
      const double c = static_cast<double>(before) / static_cast<double>(before_.back());
      return std::log(c) - std::log1p(-c) - limit;
    };
    const size_t place = std::min(rank, most_ - 1);
    const bool enters = above(before_[place]) >= 0;
    double least = kInfinity;
    for (size_t n = 0; enters && n <= place; ++n) {
      least = std::min(least, std::max(n < rank ? z_of(n) - z(id) : 0.0, above(before_[n])));
    }
    const uint64_t own = before_[place + 1] - before_[place];
    for (size_t n = place + 1; !enters && n <= most_; ++n) {
      least = std::min(least, std::max(n > place + 1 ? z(id) - z_of(n - 1) : 0.0, -above(before_[n] - own)));
    }
    return enters ? least : -least;
  }
  float z_of(size_t rank) const { return z_[static_cast<size_t>(order_[rank])]; }

  swy_sample_params p_;
  uint64_t position_;
  std::vector<float> z_;
  std::vector<int32_t> order_;    // ids that the mask allows, the highest z first
  std::vector<size_t> rank_;      // in it
  size_t kept_ = 0, most_ = 0;    // of it: what is drawn from, and what top-k leaves
  std::vector<uint64_t> before_;  // sums of the weights of what top-k leaves
};

}  // namespace switchyard
