// SPDX-License-Identifier: Apache-2.0
// The distinct shapes of operations that a model is made of, as a plan runs them.
#pragma once

#include <string>
#include <vector>

#include "core/plan/plan.h"

namespace switchyard::bench {

// Operations of one shape: the same id, attributes, widths and encodings. Indices refer to the plan's graph.
struct OpShape {
  std::vector<GraphOp> ops;  // at least one, in the order of the model
  uint32_t device = 0;
  const swy_kernel* chosen = nullptr;  // by the planner; NULL when a range was chosen, or a fused form
  std::string text;                    // "2048 -> 8192+4096, i4/32"
};

// Those that the plan runs, without copies. With `kind` ("linear", "acme.gelu/1") only such operations, and also as the
// program has them where the plan runs a fused form instead.
std::vector<OpShape> distinct_shapes(const Plan& plan, const Graph& program, const std::string& kind = "");

}  // namespace switchyard::bench
