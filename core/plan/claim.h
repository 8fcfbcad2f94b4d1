// SPDX-License-Identifier: Apache-2.0
// Asking a device for a range (swy.range/1, swy.range/2).
#pragma once

#include <span>
#include <vector>

#include "core/plan/graph.h"
#include "core/plan/match.h"
#include "core/plan/plan.h"
#include "core/plan/range_backend.h"

namespace switchyard {

// A range that a device takes; of 0 operations: none.
struct Claim {
  uint32_t count = 0;
  double cost_us = 0;
};

// Offers a device with ranges the operations from `begin` on, up to `offered` consecutive ones. If it refuses what it
// has claimed, once it knows how values flow, it is offered fewer, a few times. Its answers are appended to `said`.
// `reads`: reads_of(graph).
Claim claim_range(const Graph& graph, const std::vector<ValueReads>& reads, size_t begin,
                  std::span<const swy_op* const> offered, uint32_t device, const RangeBackend& backend,
                  const Matcher& matcher, std::vector<Considered>& said);

}  // namespace switchyard
