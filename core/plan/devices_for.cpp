// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/plan/cover.h"
#include "core/plan/pieces.h"
#include "core/program/op_names.h"

namespace switchyard {
namespace {

bool samples(const GraphOp& op) {
  return op.id == SWY_OP_SAMPLE || op.id == SWY_OP_TOP_CANDIDATES || op.id == SWY_OP_LM_HEAD_SAMPLE;
}

// Whether the device keeps the states of `op` as part of a range.
bool keeps(const Graph& graph, const GraphOp& op, uint32_t device, const RangeBackend& range, const Matcher& matcher,
           double& cost, std::vector<Considered>& considered) {
  if (!range.compiles() || op.states.empty()) return false;
  std::string out = matcher.ruled_out("range", range.name());
  if (out.empty()) out = matcher.dropped(device, range.name(), op.name);
  if (!out.empty()) {
    considered.push_back({matcher.device_name(device), range.name(), "range", false, 0, std::move(out)});
    return false;
  }
  return range.keeps(*OpView(graph, op, matcher.bucket()).get(), matcher.bucket(), &cost);
}

}  // namespace

bool samples_elsewhere(const PlanPolicy& policy, const GraphOp& op, uint32_t device) {
  return policy.sampler >= 0 && static_cast<uint32_t>(policy.sampler) != device && samples(op);
}

std::vector<uint32_t> devices_for(Graph& graph, const GraphOp& op, const std::vector<PlanDevice>& devices,
                                  const PlanPolicy& policy, const Matcher& matcher,
                                  std::span<const RangeBackend> ranges, std::vector<Considered>& considered) {
  std::vector<std::pair<double, uint32_t>> able;
  for (uint32_t d = 0; d < devices.size(); ++d) {
    if (samples_elsewhere(policy, op, d)) continue;
    if (const auto match = matcher.best(graph, op, d, "composite", considered)) {
      able.emplace_back(match->cost_us, d);
      continue;
    }
    if (!matcher.forced(op_kind(op)).empty()) continue;
    const size_t values = graph.values.size();
    const std::vector<GraphOp> pieces = decompose(graph, op, matcher.bucket());
    std::vector<Considered> ignored;
    double cost = 0;
    bool all = !pieces.empty();
    for (const GraphOp& piece : pieces) {
      const auto match = matcher.best(graph, piece, d, "piece", ignored);
      all = all && match.has_value();
      cost += match ? match->cost_us : 0;
    }
    graph.values.resize(values);
    const bool in_range = !all && !ranges.empty() && keeps(graph, op, d, ranges[d], matcher, cost, considered);
    if (all || in_range) able.emplace_back(cost, d);
  }
  if (!policy.ordered) {
    std::stable_sort(able.begin(), able.end(), [&](const auto& a, const auto& b) {
      const auto key = [&](const auto& x) {
        return std::pair(devices[x.second].backend == policy.last_resort, x.first);
      };
      return key(a) < key(b);
    });
  }
  std::vector<uint32_t> out;
  for (const auto& [cost, d] : able) out.push_back(d);
  return out;
}

}  // namespace switchyard
