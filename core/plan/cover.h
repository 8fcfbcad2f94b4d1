// SPDX-License-Identifier: Apache-2.0
// Cover: chooses what runs each stretch of a graph.
#pragma once

#include <span>
#include <vector>

#include "core/plan/match.h"
#include "core/plan/plan.h"
#include "core/plan/range_backend.h"

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

// `matcher` is of these devices, and of the bucket. Errors: unsupported, naming the operation and each device's reason,
// and then `refused` has devices that keep states and take no range with them; cancelled.
Result<Cover> cover_graph(const Graph& graph, const std::vector<PlanDevice>& devices, const PlanPolicy& policy,
                          const Matcher& matcher, const std::vector<uint32_t>& state_device, HeadLists head_lists,
                          const CancelCheck& cancelled, std::vector<Refusal>& refused);

// What it costs to bring so many bytes from one device to another.
double copy_cost_us(double bytes);

// The devices that can run `op` alone, composite or decomposed, best first: in the policy's order, or by cost with the
// last resort at the end. Leaves `graph` as it was, but needs it for temporaries. `ranges`, per device, adds those that
// keep the states of `op` as part of a range; empty: none.
std::vector<uint32_t> devices_for(Graph& graph, const GraphOp& op, const std::vector<PlanDevice>& devices,
                                  const PlanPolicy& policy, const Matcher& matcher,
                                  std::span<const RangeBackend> ranges, std::vector<Considered>& considered);

// Whether the policy gives an operation of the sampler to another device.
bool samples_elsewhere(const PlanPolicy& policy, const GraphOp& op, uint32_t device);

}  // namespace switchyard
