// SPDX-License-Identifier: Apache-2.0
// Search: the best way through a graph, out of the choices for each stretch of it.
#pragma once

#include <functional>
#include <vector>

#include "core/plan/cover.h"

namespace switchyard {

// The sequence of choices that covers operations 0 .. op_count - 1. Preferred are, in this order: the most operations
// that --variant forces; the smallest sum of ranks; the lowest cost, with `hop_us(i)` for entering operation i from
// another device. Empty if there is none. `by_begin[i]` are the choices that begin at operation i.
std::vector<const Choice*> best_way(const std::vector<std::vector<Choice>>& by_begin, size_t devices,
                                    const std::function<double(size_t)>& hop_us);

}  // namespace switchyard
