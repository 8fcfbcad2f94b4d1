// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <random>

namespace switchyard::bench {
namespace {

constexpr int kDraws = 1000;          // of blocks
constexpr size_t kFewPairs = 8;       // below this, redrawing says too little: see student_interval
constexpr size_t kManySittings = 8;   // from this number on whole sittings are drawn
constexpr size_t kMostPooled = 4096;  // samples that a draw takes the median of

double quantile(std::vector<double>& values, double share) {
  const auto at = static_cast<size_t>(std::lround(share * static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

// How many neighbours are drawn together; grows with the cube root of n, as theory says for correlation that fades.
size_t block_of(size_t n) { return std::max<size_t>(2, static_cast<size_t>(std::cbrt(static_cast<double>(n)) + 0.5)); }

// The interval of `statistic` over indices below `n`, drawn in circular blocks.
std::pair<double, double> bootstrap(size_t n, const std::function<double(std::span<const size_t>)>& statistic) {
  std::mt19937_64 random(20240229);
  const size_t block = std::min(n, block_of(n));
  std::vector<size_t> drawn(n);
  std::vector<double> values;
  for (int draw = 0; draw < kDraws; ++draw) {
    for (size_t i = 0; i < n; i += block) {
      const size_t from = random() % n;
      for (size_t j = i; j < std::min(i + block, n); ++j) drawn[j] = (from + j - i) % n;
    }
    values.push_back(statistic(drawn));
  }
  return {quantile(values, kOutside), quantile(values, 1 - kOutside)};
}

// Of the mean of few values, as if they were normal.
std::pair<double, double> student_interval(std::span<const double> x) {
  static constexpr double kT[] = {63.657, 9.925, 5.841, 4.604, 4.032, 3.707};  // 99%, by degrees of freedom
  const auto n = static_cast<double>(x.size());
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
  double squares = 0;
  for (const double v : x) squares += (v - mean) * (v - mean);
  const double half = kT[x.size() - 2] * std::sqrt(squares / (n - 1) / n);
  return {mean - half, mean + half};
}

// Of the median of independent values, whatever their distribution: ranks around its own.
std::pair<double, double> rank_interval(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  const auto n = static_cast<double>(x.size());
  const double reach = 2.576 * std::sqrt(n) / 2;
  const auto rank = [&](double r) { return x[static_cast<size_t>(std::clamp(r, 0.0, n - 1))]; };
  return {rank(std::floor((n - 1) / 2 - reach)), rank(std::ceil((n - 1) / 2 + reach))};
}

// Draws of few blocks hardly reach the extremes, so the interval is never narrower than the one by ranks.
std::pair<double, double> interval_of_logs(std::span<const double> logs) {
  if (logs.size() < kFewPairs) return student_interval(logs);
  std::vector<double> drawn;
  const auto [low, high] = bootstrap(logs.size(), [&](std::span<const size_t> at) {
    drawn.clear();
    for (const size_t i : at) drawn.push_back(logs[i]);
    return median_of(drawn);
  });
  const auto [rank_low, rank_high] = rank_interval({logs.begin(), logs.end()});
  return {std::min(low, rank_low), std::max(high, rank_high)};
}

// Draws whole sittings again, since all turns of one share what its processes were given, and blocks within them.
std::pair<double, double> interval_over(const std::map<uint32_t, std::vector<double>>& sittings) {
  std::vector<const std::vector<double>*> all;
  for (const auto& [sitting, logs] : sittings) all.push_back(&logs);
  std::mt19937_64 random(20240229);
  std::vector<double> drawn, values;
  for (int draw = 0; draw < kDraws; ++draw) {
    drawn.clear();
    for (size_t i = 0; i < all.size(); ++i) {
      const std::vector<double>& logs = *all[random() % all.size()];
      const size_t block = std::min(logs.size(), block_of(logs.size()));
      for (size_t j = 0; j < logs.size(); j += block) {
        const size_t from = random() % logs.size();
        for (size_t k = j; k < std::min(j + block, logs.size()); ++k)
          drawn.push_back(logs[(from + k - j) % logs.size()]);
      }
    }
    values.push_back(median_of(drawn));
  }
  return {quantile(values, kOutside), quantile(values, 1 - kOutside)};
}

}  // namespace

Interval median_interval(std::span<const Turn> turns) {
  std::vector<double> all;
  for (const Turn& t : turns) all.insert(all.end(), t.seconds.begin(), t.seconds.end());
  if (all.empty()) return {};
  const double median = median_of(all);
  // With many samples per turn, every n-th of a sorted turn is used: its distribution is what counts.
  const size_t step = all.size() / kMostPooled + 1;
  std::vector<std::vector<double>> sorted;
  for (const Turn& t : turns) {
    std::vector<double> s = t.seconds;
    std::sort(s.begin(), s.end());
    std::vector<double> kept;
    for (size_t i = std::min(step / 2, s.size() - 1); i < s.size(); i += step) kept.push_back(s[i]);
    sorted.push_back(std::move(kept));
  }
  std::vector<double> drawn;
  auto [low, high] = bootstrap(sorted.size(), [&](std::span<const size_t> at) {
    drawn.clear();
    for (const size_t i : at) drawn.insert(drawn.end(), sorted[i].begin(), sorted[i].end());
    return median_of(drawn);
  });
  if (turns.size() < kFewPairs) {  // so few draws leave out extremes: use the samples' own order
    const auto [rank_low, rank_high] = rank_interval(std::move(all));
    low = std::min(low, rank_low);
    high = std::max(high, rank_high);
  }
  return {median, std::min(low, median), std::max(high, median)};
}

Interval rate_of(const Interval& seconds, double tokens) {
  if (seconds.low <= 0) return {};
  return {tokens / seconds.median, tokens / seconds.high, tokens / seconds.low};
}

Verdict Ratio::verdict() const {
  if (low > 1 + kSameRate) return Verdict::faster;
  if (high < 1 / (1 + kSameRate)) return Verdict::slower;
  return Verdict::no_difference;
}

Ratio ratio_of(std::span<const Turn> base, std::span<const Turn> other, double base_tokens, double other_tokens) {
  std::map<std::pair<uint32_t, uint32_t>, double> rates;
  for (const Turn& t : base) {
    if (!t.seconds.empty()) rates[{t.sitting, t.round}] = base_tokens / median_of(t.seconds);
  }
  std::map<uint32_t, std::vector<double>> sittings;
  std::vector<double> all;
  for (const Turn& t : other) {
    const auto at = rates.find({t.sitting, t.round});
    if (at == rates.end() || t.seconds.empty()) continue;
    all.push_back(std::log(other_tokens / median_of(t.seconds) / at->second));
    sittings[t.sitting].push_back(all.back());
  }
  Ratio r;
  r.pairs = all.size();
  if (all.size() < 2) return r;
  const bool many = sittings.size() >= kManySittings;
  auto [low, high] = many ? interval_over(sittings) : interval_of_logs(all);
  if (!many) {
    for (const auto& [sitting, logs] : sittings) {
      const double alone = median_of(logs);
      low = std::min(low, alone);
      high = std::max(high, alone);
    }
  }
  const double median = median_of(all);
  r.ratio = std::exp(median);
  r.low = std::exp(std::min(low, median));
  r.high = std::exp(std::max(high, median));
  return r;
}

}  // namespace switchyard::bench
