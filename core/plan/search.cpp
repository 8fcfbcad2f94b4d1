// SPDX-License-Identifier: Apache-2.0
#include "core/plan/search.h"

#include <algorithm>
#include <tuple>

namespace switchyard {
namespace {

struct Score {
  int64_t forced = 0;  // negative: less is better throughout
  uint64_t rank = 0;
  double us = 0;
  bool operator<(const Score& o) const { return std::tie(forced, rank, us) < std::tie(o.forced, o.rank, o.us); }
};
struct Cell {
  bool reached = false;
  Score score;
  const Choice* via = nullptr;
  size_t from = 0;
};

}  // namespace

std::vector<const Choice*> best_way(const std::vector<std::vector<Choice>>& by_begin, size_t devices,
                                    const std::function<double(size_t)>& hop_us) {
  // By operations covered and device of the last node; `devices` means "no device yet".
  const size_t ops = by_begin.size();
  std::vector<Cell> cells((ops + 1) * (devices + 1));
  const auto at = [&](size_t i, size_t d) -> Cell& { return cells[i * (devices + 1) + d]; };
  at(0, devices).reached = true;
  for (size_t i = 0; i < ops; ++i) {
    for (size_t from = 0; from <= devices; ++from) {
      if (!at(i, from).reached) continue;
      for (const Choice& c : by_begin[i]) {
        Score score = at(i, from).score;
        score.forced -= c.forced ? 1 : 0;
        score.rank += c.rank;
        score.us += c.cost_us + (from != devices && c.nodes.front().device != from ? hop_us(i) : 0);
        Cell& to = at(i + c.count, c.device);
        if (!to.reached || score < to.score) to = {true, score, &c, from};
      }
    }
  }
  size_t d = devices;
  for (size_t k = 0; k < devices; ++k) {
    const Cell& cell = at(ops, k);
    if (cell.reached && (d == devices || cell.score < at(ops, d).score)) d = k;
  }
  std::vector<const Choice*> way;
  if (d == devices) return way;
  for (size_t i = ops; i > 0;) {
    const Cell& cell = at(i, d);
    way.push_back(cell.via);
    d = cell.from;
    i = cell.via->begin;
  }
  std::reverse(way.begin(), way.end());
  return way;
}

}  // namespace switchyard
