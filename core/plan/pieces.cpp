// SPDX-License-Identifier: Apache-2.0
#include "core/plan/pieces.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "core/program/op_names.h"
#include "switchyard/decompose.h"

namespace switchyard {
namespace {

// Whether the operation has as many operands of each kind as its entry asks for.
bool fits(const swy_op_spec& spec, const GraphOp& op) {
  const std::array sizes = {op.inputs.size(), op.weights.size(), op.states.size(), op.outputs.size()};  // by SWY_REF_*
  const auto outputs = static_cast<uint32_t>(op.outputs.size());
  std::array<uint32_t, 4> places{};
  for (const swy_operand_spec& o : std::span(spec.operands, spec.operand_count)) {
    const auto size = static_cast<uint32_t>(sizes[o.list]);
    places[o.list] += swy_operand_places(&o, op.attrs.data(), places[o.list], size, outputs);
  }
  return std::equal(places.begin(), places.end(), sizes.begin());
}

void append(std::vector<uint32_t>& list, const std::vector<uint32_t>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

// `a` and `b`, which reads the value between them, as one operation of this entry.
GraphOp join(const swy_op_spec& spec, const GraphOp& a, const GraphOp& b, uint32_t between) {
  GraphOp fused;
  fused.name = a.name + "+" + b.name;
  fused.id = spec.id;
  fused.revision = spec.revision;
  fused.inputs = a.inputs;
  std::copy_if(b.inputs.begin(), b.inputs.end(), std::back_inserter(fused.inputs),
               [&](uint32_t value) { return value != between; });
  fused.weights = a.weights;
  append(fused.weights, b.weights);
  fused.states = a.states;
  append(fused.states, b.states);
  if (spec.keeps != 0) fused.outputs = {between};
  append(fused.outputs, b.outputs);
  fused.attrs = a.attrs.empty() ? b.attrs : a.attrs;
  return fused;
}

}  // namespace

std::optional<GraphOp> fuse(const Graph& graph, const std::vector<ValueReads>& reads, size_t i) {
  if (i + 1 >= graph.ops.size()) return std::nullopt;
  const GraphOp& a = graph.ops[i];
  const GraphOp& b = graph.ops[i + 1];
  if (a.outputs.size() != 1) return std::nullopt;
  const uint32_t between = a.outputs[0];
  if (std::count(b.inputs.begin(), b.inputs.end(), between) != 1) return std::nullopt;
  for (const swy_op_spec& spec : swy_op_table) {
    if (spec.first != a.id || spec.second != b.id || spec.revision != std::max(a.revision, b.revision)) continue;
    if (spec.keeps == 0 && reads[between].count != 1) continue;
    GraphOp fused = join(spec, a, b, between);
    if (fits(spec, fused)) return fused;
  }
  return std::nullopt;
}

std::vector<GraphOp> decompose(Graph& graph, const GraphOp& op, const swy_bucket& bucket) {
  swy_decomposition d;
  {
    const OpView view(graph, op, bucket);
    if (swy_decompose(view.get(), &d) != 0) return {};
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
    out.revision = piece.revision;
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
