// SPDX-License-Identifier: Apache-2.0
#include "core/engine/routing.h"

#include <algorithm>
#include <numeric>

#include "core/engine/session.h"
#include "core/plan/expand.h"
#include "switchyard/op_table.h"

namespace switchyard {
namespace {

std::vector<uint64_t> ranked(const std::vector<uint64_t>& counts) {
  std::vector<uint64_t> sorted = counts;
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

bool has_router(const GraphOp& op) { return op.id == SWY_OP_MOE && op.inputs.size() == 1; }

// Whether a router is among the operations of the function, or of those that it names. The verifier bounds the depth.
bool has_router(const std::vector<GraphFunction>& functions, uint32_t function) {
  const std::vector<GraphOp>& ops = functions[function].ops;
  return std::any_of(ops.begin(), ops.end(), [&](const GraphOp& op) {
    return has_router(op) || (!op.named.empty() && has_router(functions, op.function));
  });
}

// Appends the operations that choose the experts of a mixture, as decompose.h has them.
Router add_router(Graph& graph, const GraphOp& op, std::vector<GraphOp>& ops) {
  const auto a = op.attrs_as<swy_moe_attrs>();
  const swy_bucket bucket{};
  const OpView view(graph, op, bucket);
  const auto weight = [&](const char* name, std::vector<uint32_t>& list) {
    const swy_ref ref = swy_operand(view.get(), name);
    if (ref != SWY_REF_NONE) list.push_back(op.weights[SWY_REF_INDEX(ref)]);
  };
  const auto value = [&](const char* name, swy_dtype dtype, uint64_t width) {
    graph.values.push_back({op.name + name, dtype, SWY_ROWS_STEP, width});
    return static_cast<uint32_t>(graph.values.size() - 1);
  };
  const uint32_t logits = value(".router", SWY_F32, a.experts), ids = value(".chosen", SWY_I32, a.top_k);
  GraphOp linear;
  linear.name = op.name + ".router";
  linear.id = SWY_OP_LINEAR;
  linear.inputs = op.inputs;
  weight("router", linear.weights);
  weight("router_bias", linear.weights);
  linear.revision = static_cast<uint32_t>(linear.weights.size());  // the second has a bias
  linear.outputs = {logits};
  GraphOp choice;
  choice.name = op.name + ".chosen";
  choice.id = SWY_OP_ROUTER_TOPK;
  choice.revision = op.revision;
  choice.attrs = op.attrs;
  choice.inputs = {logits};
  weight("correction_bias", choice.weights);
  choice.outputs = {ids, value(".weights", SWY_F32, a.top_k)};
  ops.push_back(std::move(linear));
  ops.push_back(std::move(choice));
  graph.results.push_back(ids);
  return {op.name, ids, a.experts, a.top_k};
}

}  // namespace

std::vector<Router> add_routers(Graph& graph) {
  expand_named(graph, [](const Graph& g, const GraphOp& op, std::vector<Considered>&) {
    return !has_router(*g.functions, op.function);
  });
  std::vector<Router> routers;
  std::vector<GraphOp> ops;
  for (GraphOp& op : graph.ops) {
    if (has_router(op)) routers.push_back(add_router(graph, op, ops));
    ops.push_back(std::move(op));
  }
  graph.ops = std::move(ops);
  return routers;
}

double ExpertCounts::least() const { return static_cast<double>(ranked(counts).front()) / static_cast<double>(total); }

double ExpertCounts::median() const {
  return static_cast<double>(ranked(counts)[counts.size() / 2]) / static_cast<double>(total);
}

double ExpertCounts::most() const { return static_cast<double>(ranked(counts).back()) / static_cast<double>(total); }

double ExpertCounts::busiest_tenth() const {
  const std::vector<uint64_t> sorted = ranked(counts);
  const auto tenth = static_cast<std::ptrdiff_t>(std::max<size_t>(1, sorted.size() / 10));
  return static_cast<double>(std::accumulate(sorted.end() - tenth, sorted.end(), uint64_t{0})) /
         static_cast<double>(total);
}

Result<std::vector<ExpertCounts>> count_experts(Model& model, std::span<const int32_t> ids) {
  if (model.routers().empty()) return error(Code::unsupported, "this model has no experts that a router chooses");
  std::vector<ExpertCounts> all;
  for (const Router& r : model.routers()) all.push_back({r.name, std::vector<uint64_t>(r.experts), 0});
  SWY_LET(const auto session, model.session());
  std::vector<int32_t> chosen;
  for (size_t at = 0; at < ids.size();) {
    const size_t rows = std::min<size_t>(ids.size() - at, model.chunk());
    SWY_TRY(session->feed(ids.subspan(at, rows)).status());
    for (size_t l = 0; l < all.size(); ++l) {
      const Router& r = model.routers()[l];
      chosen.resize(rows * r.top_k);
      SWY_TRY(model.runner().read_result(r.value, std::as_writable_bytes(std::span(chosen))));
      for (const int32_t id : chosen) ++all[l].counts[std::min(static_cast<uint32_t>(id), r.experts - 1)];
      all[l].total += chosen.size();
    }
    at += rows;
  }
  return all;
}

}  // namespace switchyard
