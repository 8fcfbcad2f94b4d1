// SPDX-License-Identifier: Apache-2.0
// Pending rows (switchyard/step.h) in a program's graph: so that a step with drafts need not write states before it is
// known which of its rows stand. Which operations can have them is in the op table: those whose next revision adds a
// state of this name.
#pragma once

#include <optional>

#include "core/plan/graph.h"

namespace switchyard {

// The place of an operation's pending rows among its states, if it has any.
std::optional<uint32_t> pending_place(const GraphOp& op);

// Gives every such operation a state for so many pending rows. False, with the graph as it was, where it has none, or
// where other operations have states that cannot be cut back.
bool add_pending_rows(Graph& graph, uint32_t rows);

}  // namespace switchyard
