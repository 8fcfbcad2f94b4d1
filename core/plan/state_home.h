// SPDX-License-Identifier: Apache-2.0
// State homes: which device keeps each state of a graph.
#pragma once

#include <vector>

#include "core/base/cancel.h"
#include "core/plan/plan.h"

namespace switchyard {

// Per state: the best device, in the policy's order, that runs all operations on it in every bucket up to `max_rows`
// rows and the pool's context and sequences; 0 for a state that no operation has. States that share an operation share
// a device. Leaves `graph` as it was, but needs it for temporaries. Errors: unsupported, naming the operation and what
// each device said; cancelled.
Result<std::vector<uint32_t>> state_homes(Graph& graph, const std::vector<PlanDevice>& devices,
                                          const PlanPolicy& policy, const std::vector<VariantRule>& variants,
                                          const swy_bucket& pool, uint32_t max_rows, const CancelCheck& cancelled);

}  // namespace switchyard
