// SPDX-License-Identifier: Apache-2.0
#include "core/plan/expand.h"

#include <algorithm>
#include <utility>

namespace switchyard {
namespace {

constexpr uint32_t kUnset = UINT32_MAX;

// `list`, with each parameter replaced by the operand that the caller gives for it.
void replace(std::vector<uint32_t>& list, const std::vector<uint32_t>& parameters,
             const std::vector<uint32_t>& operands) {
  for (uint32_t& index : list) {
    const auto at = std::find(parameters.begin(), parameters.end(), index);
    if (at != parameters.end()) index = operands[static_cast<size_t>(at - parameters.begin())];
  }
}

class Expander {
 public:
  Expander(Graph& graph, const Keeps& keeps) : graph_(graph), keeps_(keeps) {}

  void run() {
    for (GraphOp& op : std::exchange(graph_.ops, {})) add(std::move(op));
    graph_.ops = std::move(ops_);
  }

 private:
  void add(GraphOp op) {
    std::vector<Considered> considered;
    if (op.named.empty() || keeps_(graph_, op, considered)) {
      ops_.push_back(std::move(op));
      return;
    }
    const GraphFunction& f = (*graph_.functions)[op.function];
    graph_.expansions.push_back({op.name, op.named, f.name, std::move(considered), op.expansion});
    auto expansion = static_cast<int32_t>(graph_.expansions.size() - 1);
    for (GraphOp& piece : pieces(f, op)) {
      piece.expansion = std::exchange(expansion, -1);
      add(std::move(piece));
    }
  }

  // The function's operations on the operands of `op`, with values of their own in between.
  std::vector<GraphOp> pieces(const GraphFunction& f, const GraphOp& op) {
    std::vector<uint32_t> values(f.values.size(), kUnset);
    for (size_t i = 0; i < f.inputs.size(); ++i) values[f.inputs[i]] = op.inputs[i];
    for (size_t i = 0; i < f.outputs.size(); ++i) values[f.outputs[i]] = op.outputs[i];
    for (size_t v = 0; v < values.size(); ++v) {
      if (values[v] != kUnset) continue;
      values[v] = static_cast<uint32_t>(graph_.values.size());
      GraphValue& value = graph_.values.emplace_back(f.values[v]);
      value.name = op.name + "/" + value.name;
    }
    std::vector<GraphOp> out = f.ops;
    for (GraphOp& piece : out) {
      piece.name = op.name + "/" + piece.name;
      for (uint32_t& v : piece.inputs) v = values[v];
      for (uint32_t& v : piece.outputs) v = values[v];
      replace(piece.weights, f.weights, op.weights);
      replace(piece.states, f.states, op.states);
    }
    return out;
  }

  Graph& graph_;
  const Keeps& keeps_;
  std::vector<GraphOp> ops_;
};

}  // namespace

void expand_named(Graph& graph, const Keeps& keeps) {
  const bool none = std::all_of(graph.ops.begin(), graph.ops.end(), [](const GraphOp& op) { return op.named.empty(); });
  if (!none) Expander(graph, keeps).run();
}

}  // namespace switchyard
