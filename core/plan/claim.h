// SPDX-License-Identifier: Apache-2.0
// Asking a device for a range (swy.range/1).
#pragma once

#include <span>

#include "core/plan/graph.h"
#include "core/plan/plan.h"

namespace switchyard {

// Offers a device with ranges the operations from `begin` on, up to `offered` consecutive ones. Returns how many it
// takes, 0 for none; its answer goes to `said`. `reads`: reads_of(graph).
uint32_t claim_range(const Graph& graph, const std::vector<ValueReads>& reads, size_t begin,
                     std::span<const swy_op* const> offered, const swy_bucket& bucket, const PlanDevice& device,
                     Considered& said);

}  // namespace switchyard
