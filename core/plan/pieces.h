// SPDX-License-Identifier: Apache-2.0
// Pieces: rewriting operations of a graph into fused composites and into primitives.
#pragma once

#include <optional>
#include <vector>

#include "core/plan/graph.h"

namespace switchyard {

// The fused composite of ops[i] and ops[i + 1], if ops.h has one and the graph allows it: a value between the two that
// is also read elsewhere must be an output of the fused form. `reads`: reads_of(graph).
std::optional<GraphOp> fuse(const Graph& graph, const std::vector<ValueReads>& reads, size_t i);

// The primitives of `op`, with new temporaries appended to `graph`; empty if it has no decomposition.
std::vector<GraphOp> decompose(Graph& graph, const GraphOp& op, const swy_bucket& bucket);

}  // namespace switchyard
