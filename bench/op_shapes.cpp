// SPDX-License-Identifier: Apache-2.0
#include "bench/op_shapes.h"

#include <algorithm>

#include "core/plan/op_shape.h"

namespace switchyard::bench {
namespace {

class Collector {
 public:
  explicit Collector(const Graph& graph) : graph_(graph) {}

  void add(const GraphOp& op, uint32_t device, const swy_kernel* chosen) {
    const std::string key = shape_key(graph_, op, true);
    const auto at = std::find(keys_.begin(), keys_.end(), key);
    if (at != keys_.end()) {
      shapes[static_cast<size_t>(at - keys_.begin())].ops.push_back(op);
      return;
    }
    keys_.push_back(key);
    shapes.push_back({{op}, device, chosen, shape_text(graph_, op)});
  }

  std::vector<OpShape> shapes;

 private:
  const Graph& graph_;
  std::vector<std::string> keys_;
};

}  // namespace

std::vector<OpShape> distinct_shapes(const Plan& plan, const Graph& program, const std::string& only) {
  Collector all(plan.graph);
  const auto wanted = [&](const GraphOp& op) { return only.empty() || op_kind(op) == only; };
  uint32_t device = 0;  // of the first node that computes
  for (const PlanNode& n : plan.nodes) {
    if (n.copy_from >= 0) continue;
    if (all.shapes.empty()) device = n.device;
    if (n.kernel == nullptr) {
      for (const GraphOp& op : n.range_ops) {
        if (wanted(op)) all.add(op, n.device, nullptr);
      }
    } else if (wanted(n.op)) {
      all.add(n.op, n.device, n.kernel);
    }
  }
  if (only.empty() || !all.shapes.empty()) return std::move(all.shapes);
  for (const GraphOp& op : program.ops) {
    if (wanted(op)) all.add(op, op.states.empty() ? device : plan.state_device[op.states[0]], nullptr);
  }
  return std::move(all.shapes);
}

}  // namespace switchyard::bench
