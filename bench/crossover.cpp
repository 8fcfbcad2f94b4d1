// SPDX-License-Identifier: Apache-2.0
#include "bench/crossover.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "bench/statistics.h"

namespace switchyard::bench {
namespace {

using ByKernel = std::map<std::string, const OpTime*>;
using ByRows = std::map<uint32_t, ByKernel>;

const OpTime* fastest(const ByKernel& kernels) {
  const auto at = std::min_element(kernels.begin(), kernels.end(), [](const auto& a, const auto& b) {
    return a.second->samples.median() < b.second->samples.median();
  });
  return at == kernels.end() ? nullptr : at->second;
}

const OpTime* find(const ByKernel& kernels, const std::string& name) {
  const auto at = kernels.find(name);
  return at == kernels.end() ? nullptr : at->second;
}

bool few(const OpTime* t) { return t != nullptr && t->samples.seconds.size() < kFewestSamples; }

bool apart(const OpTime* faster, const OpTime* slower) {
  return slower == nullptr || median_bounds(faster->samples).high < median_bounds(slower->samples).low;
}

// Where the logarithms of two kernels' times, as lines over that of the rows, cross.
double crossing(uint32_t a, uint32_t b, const OpTime* from_a, const OpTime* to_a, const OpTime* from_b,
                const OpTime* to_b) {
  if (to_a == nullptr || from_b == nullptr) return b;  // one of them does not take so many rows
  const double lead = std::log(to_a->samples.median() / from_a->samples.median());
  const double lag = std::log(from_b->samples.median() / to_b->samples.median());
  const double t = lead + lag > 0 ? lead / (lead + lag) : 0.5;
  return std::exp(std::log(a) + t * (std::log(b) - std::log(a)));
}

}  // namespace

MedianBounds median_bounds(const Samples& samples) {
  std::vector<double> s = samples.seconds;
  if (s.empty()) return {};
  std::sort(s.begin(), s.end());
  constexpr double kStandardDeviations = 2.576;  // 99%
  const double n = static_cast<double>(s.size()), reach = kStandardDeviations * std::sqrt(n) / 2;
  const auto at = [&](double rank) { return s[static_cast<size_t>(std::clamp(rank, 0.0, n - 1))]; };
  return {at(std::floor(n / 2 - reach)), at(std::ceil(n / 2 + reach) - 1)};
}

std::vector<Crossover> crossovers(const std::vector<OpTime>& times) {
  std::map<std::tuple<std::string, std::string, std::string>, ByRows> shapes;
  for (const OpTime& t : times) shapes[{t.device, t.op, t.shape}][t.rows][t.kernel] = &t;
  std::vector<Crossover> all;
  for (const auto& [shape, by_rows] : shapes) {
    for (auto at = by_rows.begin(), next = std::next(at); next != by_rows.end(); at = next++) {
      const OpTime *from = fastest(at->second), *to = fastest(next->second);
      if (from->kernel == to->kernel) continue;
      const OpTime *to_before = find(at->second, to->kernel), *from_after = find(next->second, from->kernel);
      Crossover c{from->device, from->op, from->shape, from->kernel, to->kernel, at->first, next->first};
      c.about = crossing(at->first, next->first, from, to_before, from_after, to);
      c.few = few(from) || few(to_before) || few(to) || few(from_after);
      c.clear = !c.few && apart(from, to_before) && apart(to, from_after);
      for (const auto& [rows, kernels] : by_rows) {
        const OpTime* t = find(kernels, to->kernel);
        if (c.planner == 0 && t != nullptr && t->chosen) c.planner = rows;
      }
      all.push_back(std::move(c));
    }
  }
  return all;
}

}  // namespace switchyard::bench
