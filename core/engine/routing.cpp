// SPDX-License-Identifier: Apache-2.0
#include "core/engine/routing.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/engine/session.h"
#include "core/plan/expand.h"

namespace switchyard {
namespace {

// Adds the `k` largest of a row, ties to the lowest id.
void count_row(std::span<const float> logits, uint32_t k, std::vector<uint32_t>& order, std::vector<uint64_t>& counts) {
  std::iota(order.begin(), order.end(), 0u);
  std::partial_sort(order.begin(), order.begin() + k, order.end(),
                    [&](uint32_t a, uint32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  for (uint32_t i = 0; i < k; ++i) ++counts[order[i]];
}

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

}  // namespace

std::vector<Router> add_routers(Graph& graph) {
  expand_named(graph, [](const Graph& g, const GraphOp& op, std::vector<Considered>&) {
    return !has_router(*g.functions, op.function);
  });
  std::vector<Router> routers;
  std::vector<GraphOp> ops;
  for (GraphOp& op : graph.ops) {
    if (has_router(op)) {
      const auto a = op.attrs_as<swy_moe_attrs>();
      const auto value = static_cast<uint32_t>(graph.values.size());
      graph.values.push_back({op.name + ".router", SWY_F32, SWY_ROWS_STEP, a.experts});
      GraphOp& linear = ops.emplace_back();
      linear.name = op.name + ".router";
      linear.id = SWY_OP_LINEAR;
      linear.inputs = op.inputs;
      linear.weights = {op.weights[0]};
      linear.outputs = {value};
      graph.results.push_back(value);
      routers.push_back({op.name, value, a.experts, a.top_k});
    }
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
  std::vector<float> logits;
  std::vector<uint32_t> order;
  for (size_t at = 0; at < ids.size();) {
    const size_t rows = std::min<size_t>(ids.size() - at, model.chunk());
    SWY_TRY(session->feed(ids.subspan(at, rows)).status());
    for (size_t l = 0; l < all.size(); ++l) {
      const Router& r = model.routers()[l];
      logits.resize(rows * r.experts);
      order.resize(r.experts);
      SWY_TRY(model.runner().read_result(r.value, std::as_writable_bytes(std::span(logits))));
      for (size_t row = 0; row < rows; ++row) {
        count_row(std::span(logits).subspan(row * r.experts, r.experts), r.top_k, order, all[l].counts);
      }
      all[l].total += rows * r.top_k;
    }
    at += rows;
  }
  return all;
}

}  // namespace switchyard
