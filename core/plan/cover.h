// SPDX-License-Identifier: Apache-2.0
// Cover: chooses what runs each stretch of a graph.
#pragma once

#include <vector>

#include "core/plan/match.h"
#include "core/plan/plan.h"

namespace switchyard {

// Ways to run `count` operations from `begin`, on one device unless it is a mixed decomposition. `nodes` refer to
// `graph` of the Cover, which holds the temporaries too.
struct Choice {
  uint32_t begin = 0, count = 1;
  uint32_t device = 0;  // of the last node
  double cost_us = 0;
  bool forced = false;  // a fused composite or range that --variant names
  uint64_t rank = 0;    // how far its devices are from the policy's first wish; the search wants little before cheap
  std::string reason;
  std::vector<PlanNode> nodes;
};

struct Cover {
  Graph graph;                          // with temporaries
  std::vector<Choice> choices;          // in order
  std::vector<PlanDecision> decisions;  // per operation of the original graph
  std::vector<std::string> warnings;
};

// Errors: unsupported, naming the operation and each device's reason; cancelled.
Result<Cover> cover_graph(const Graph& graph, const std::vector<PlanDevice>& devices, const PlanPolicy& policy,
                          const std::vector<VariantRule>& variants, const std::vector<uint32_t>& state_device,
                          const swy_bucket& bucket, const CancelCheck& cancelled);

// The devices that can run `op` alone, composite or decomposed, best first: in the policy's order, or by cost with the
// last resort at the end. Leaves `graph` as it was, but needs it for temporaries.
std::vector<uint32_t> devices_for(Graph& graph, const GraphOp& op, const std::vector<PlanDevice>& devices,
                                  const PlanPolicy& policy, const Matcher& matcher,
                                  std::vector<Considered>& considered);

}  // namespace switchyard
