// SPDX-License-Identifier: Apache-2.0
#include "bench/op_oracle.h"

#include <map>

#include "core/plan/expand.h"
#include "core/plan/match.h"

namespace switchyard::bench {

std::optional<OpOracle> OpOracle::find(const Graph& graph, const GraphOp& op, const std::vector<PlanDevice>& devices,
                                       uint32_t device, const swy_bucket& bucket) {
  OpOracle oracle;
  oracle.graph_ = graph;
  oracle.graph_.ops = {op};
  oracle.inputs_ = op.inputs;
  oracle.outputs_ = op.outputs;
  expand_named(oracle.graph_, [](const Graph&, const GraphOp&, std::vector<Considered>&) { return false; });
  const std::vector<VariantRule> any;
  const Matcher matcher(devices, any, bucket);
  for (GraphOp& piece : oracle.graph_.ops) {
    for (uint32_t& w : piece.weights) {
      if (graph.weights[w].desc.encoding != nullptr) w = graph.weights[w].f32;
    }
    std::vector<Considered> answers;
    const auto match = matcher.best(oracle.graph_, piece, device, "alone", answers);
    if (!match) return {};
    oracle.kernels_.push_back(match->kernel);
  }
  return oracle;
}

Result<std::vector<std::vector<float>>> OpOracle::run(OpContext context,
                                                      const std::vector<std::vector<float>>& inputs) const {
  context.graph = &graph_;
  std::map<uint32_t, std::vector<float>> values;
  for (size_t i = 0; i < inputs_.size(); ++i) values[inputs_[i]] = inputs[i];
  for (size_t i = 0; i < graph_.ops.size(); ++i) {
    const GraphOp& op = graph_.ops[i];
    SWY_LET(const auto run, OpRun::create(context, *kernels_[i], {&op, 1}, 1));
    for (size_t k = 0; k < op.inputs.size(); ++k) SWY_TRY(run->set_input(k, values[op.inputs[k]]));
    SWY_TRY(run->run());
    SWY_LET(auto outputs, run->outputs());
    for (size_t k = 0; k < op.outputs.size(); ++k) values[op.outputs[k]] = std::move(outputs[k]);
  }
  std::vector<std::vector<float>> out;
  for (const uint32_t v : outputs_) out.push_back(values[v]);
  return out;
}

}  // namespace switchyard::bench
