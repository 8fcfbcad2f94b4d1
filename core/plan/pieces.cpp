// SPDX-License-Identifier: Apache-2.0
#include "core/plan/pieces.h"

#include <algorithm>

#include "core/program/op_names.h"
#include "switchyard/decompose.h"

namespace switchyard {
namespace {

GraphOp join(const GraphOp& a, const GraphOp& b, uint32_t id) {
  GraphOp fused;
  fused.name = a.name + "+" + b.name;
  fused.id = id;
  fused.inputs = a.inputs;
  fused.weights = a.weights;
  fused.states = a.states;
  fused.outputs = b.outputs;
  fused.attrs = a.attrs;
  return fused;
}

// `producer` then ADD of its only output: the other operand of the ADD is the residual.
std::optional<GraphOp> fuse_with_add(const GraphOp& producer, const GraphOp& add, uint32_t id) {
  const uint32_t y = producer.outputs[0];
  if (add.inputs[0] == add.inputs[1]) return std::nullopt;
  GraphOp fused = join(producer, add, id);
  fused.inputs.push_back(add.inputs[0] == y ? add.inputs[1] : add.inputs[0]);
  return fused;
}

}  // namespace

std::optional<GraphOp> fuse(const Graph& graph, const std::vector<ValueReads>& reads, size_t i) {
  if (i + 1 >= graph.ops.size()) return std::nullopt;
  const GraphOp& a = graph.ops[i];
  const GraphOp& b = graph.ops[i + 1];
  if (a.revision != 1 || b.revision != 1 || a.outputs.size() != 1) return std::nullopt;
  const uint32_t between = a.outputs[0];
  const bool feeds = std::count(b.inputs.begin(), b.inputs.end(), between) == 1;
  if (!feeds) return std::nullopt;

  if (a.id == SWY_OP_ADD && b.id == SWY_OP_RMS_NORM) {  // the sum stays an output
    GraphOp fused = join(a, b, SWY_OP_ADD_RMS_NORM);
    fused.attrs = b.attrs;
    fused.weights = b.weights;
    fused.outputs = {between, b.outputs[0]};
    return fused;
  }
  if (reads[between].count != 1) return std::nullopt;
  if (a.id == SWY_OP_RMS_NORM && b.id == SWY_OP_LINEAR) {
    GraphOp fused = join(a, b, SWY_OP_RMS_NORM_LINEAR);
    fused.weights.insert(fused.weights.end(), b.weights.begin(), b.weights.end());
    return fused;
  }
  if (a.id == SWY_OP_LINEAR && b.id == SWY_OP_ADD) return fuse_with_add(a, b, SWY_OP_LINEAR_ADD);
  if (a.id == SWY_OP_MOE && a.inputs.size() == 1 && b.id == SWY_OP_ADD) return fuse_with_add(a, b, SWY_OP_MOE_ADD);
  if (a.id == SWY_OP_LM_HEAD && b.id == SWY_OP_SAMPLE) {
    GraphOp fused = join(a, b, SWY_OP_LM_HEAD_SAMPLE);
    fused.states = b.states;  // the token counts
    return fused;
  }
  return std::nullopt;
}

std::vector<GraphOp> decompose(Graph& graph, const GraphOp& op, const swy_bucket& bucket) {
  swy_decomposition d;
  {
    const OpView view(graph, op, bucket);
    if (op.revision != 1 || swy_decompose(view.get(), &d) != 0) return {};
  }
  const auto first_temp = static_cast<uint32_t>(graph.values.size());
  for (uint32_t t = 0; t < d.temp_count; ++t) {
    graph.values.push_back({fmt::format("{}.t{}", op.name, t), d.temps[t].dtype, d.temps[t].rows, d.temps[t].dims[1]});
  }
  const auto resolve = [&](swy_ref ref) {
    const uint32_t i = SWY_REF_INDEX(ref);
    switch (SWY_REF_KIND(ref)) {
      case SWY_REF_INPUT:
        return op.inputs[i];
      case SWY_REF_WEIGHT:
        return op.weights[i];
      case SWY_REF_STATE:
        return op.states[i];
      case SWY_REF_OUTPUT:
        return op.outputs[i];
      default:
        return first_temp + i;
    }
  };
  std::vector<GraphOp> pieces;
  for (uint32_t p = 0; p < d.piece_count; ++p) {
    const swy_piece& piece = d.pieces[p];
    GraphOp& out = pieces.emplace_back();
    out.name = op.name + "/" + op_name(piece.id);
    out.id = piece.id;
    const auto* attrs = reinterpret_cast<const std::byte*>(&piece.attrs);
    out.attrs.assign(attrs, attrs + piece.attrs_size);
    for (uint32_t i = 0; i < piece.input_count; ++i) out.inputs.push_back(resolve(piece.inputs[i]));
    for (uint32_t i = 0; i < piece.weight_count; ++i) out.weights.push_back(resolve(piece.weights[i]));
    for (uint32_t i = 0; i < piece.state_count; ++i) out.states.push_back(resolve(piece.states[i]));
    for (uint32_t i = 0; i < piece.output_count; ++i) out.outputs.push_back(resolve(piece.outputs[i]));
  }
  return pieces;
}

}  // namespace switchyard
