// Asking a device for a range (swy.range/1).
#pragma once

#include <span>

#include "core/plan/graph.h"
#include "core/plan/plan.h"

namespace switchyard {

// Asks a device that offers ranges for one of the graph's operations from the one at `begin`, of which it is `offered`
// as many as follow each other; returns how many it takes, 0 for none, and fills what it `said`.
uint32_t claim_range(const Graph& graph, size_t begin, std::span<const swy_op* const> offered, const swy_bucket& bucket,
                     const PlanDevice& device, Considered& said);

}  // namespace switchyard
