// SPDX-License-Identifier: Apache-2.0
// Expand: operations that have a name are replaced by those of the function that does the same.
#pragma once

#include <functional>
#include <vector>

#include "core/plan/graph.h"

namespace switchyard {

// Whether an operation that has a name stays one. May append answers of kernels.
using Keeps = std::function<bool(const Graph& graph, const GraphOp& op, std::vector<Considered>& considered)>;

// Replaces each operation with a name that is not kept, over and over, and appends to graph.expansions. The verifier
// bounds how many operations this can make.
void expand_named(Graph& graph, const Keeps& keeps);

}  // namespace switchyard
