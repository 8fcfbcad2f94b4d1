// SPDX-License-Identifier: Apache-2.0
// Pending rows (switchyard/step.h) in a program's graph: so that a step with drafts need not write states before it is
// known which of its rows stand.
#pragma once

#include "core/plan/graph.h"

namespace switchyard {

// Gives every GATED_DELTA a state for so many pending rows. False, with the graph as it was, where it has none, or
// where other operations have states that cannot be cut back.
bool add_pending_rows(Graph& graph, uint32_t rows);

}  // namespace switchyard
