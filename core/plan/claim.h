// Asking a device for a range (swy.range/1).
#pragma once

#include "core/plan/graph.h"
#include "core/plan/plan.h"

namespace switchyard {

// Asks a device that offers ranges for one of at most `count` operations of the graph from the one at `begin`; returns
// how many it takes, 0 for none, and fills what it `said`.
uint32_t claim_range(const Graph& graph, size_t begin, size_t count, const swy_bucket& bucket, const PlanDevice& device,
                     Considered& said);

}  // namespace switchyard
