// SPDX-License-Identifier: Apache-2.0
// The router of MOE, step by step: also for cases, which need to know how clear a choice is.
#pragma once

#include "plugins_api/check/case.h"

namespace switchyard::check::naive {

struct Route {
  uint32_t expert;
  double weight;
};

swy_moe_attrs moe_attrs(const Case& c);

// The indices of the n largest, the largest first, ties to the lowest index.
std::vector<uint32_t> largest(const std::vector<double>& x, uint32_t n);

// Per expert, before the correction.
std::vector<double> scores_of(const swy_moe_attrs& a, const std::vector<double>& logits);

// Per group of experts.
std::vector<double> group_ranks(const swy_moe_attrs& a, const std::vector<double>& choices);

// The choices; -inf for those whose group is not among the top_groups.
std::vector<double> in_top_groups(const swy_moe_attrs& a, const std::vector<double>& choices);

// The experts of a row and their weights. `correction` may be NULL.
std::vector<Route> choose(const swy_moe_attrs& a, const std::vector<double>& logits, const Weight* correction);

}  // namespace switchyard::check::naive
