// SPDX-License-Identifier: Apache-2.0
#include "bench/workload.h"

#include <algorithm>
#include <cmath>

#include "core/engine/session.h"
#include "core/plan/expand.h"
#include "switchyard/weights.h"

namespace switchyard::bench {
namespace {

// One operation's part of a workload.
class Counter {
 public:
  Counter(const Graph& graph, const GraphOp& op, const StepShape& step)
      : graph_(graph), op_(op), rows_(step.rows), step_(step) {}

  Workload count() {
    switch (op_.id) {
      case SWY_OP_EMBEDDING:
        w_.weight_bytes += bytes(0) / static_cast<double>(tensor(0).dims[0]) * rows_;
        break;
      case SWY_OP_MOE:
      case SWY_OP_MOE_ADD:
        experts(1);
        break;
      case SWY_OP_EXPERTS:
        experts(0);
        break;
      case SWY_OP_LM_HEAD:
      case SWY_OP_LM_HEAD_SAMPLE:
        weights(step_.logit_rows);
        break;
      case SWY_OP_ATTENTION:
      case SWY_OP_ATTEND:
        weights(rows_);
        attention();
        break;
      case SWY_OP_GATED_DELTA:
      case SWY_OP_DELTA_RULE:
        weights(rows_);
        delta();
        break;
      default:
        weights(rows_);
    }
    return w_;
  }

 private:
  const swy_tensor& tensor(size_t i) const { return graph_.weights[op_.weights[i]].desc; }
  double bytes(size_t i) const {
    swy_weight_planes planes;
    return swy_weight_planes_of(&tensor(i), &planes) == 0 ? static_cast<double>(planes.total_bytes) : 0;
  }
  double elements(size_t i) const {
    double n = 1;
    for (uint32_t d = 0; d < tensor(i).rank; ++d) n *= static_cast<double>(tensor(i).dims[d]);
    return n;
  }

  void weights(double rows) {
    for (size_t i = 0; i < op_.weights.size(); ++i) {
      w_.weight_bytes += bytes(i);
      w_.products += elements(i) * rows;
    }
  }

  // Weights `first` (gate and up) and `first` + 1 (down) are experts'; the others are read whole.
  void experts(size_t first) {
    const auto a = op_.attrs_as<swy_moe_attrs>();
    const double share = static_cast<double>(a.top_k) / a.experts;
    const double touched = 1 - std::pow(1 - share, rows_);  // an expert is left out by every row
    for (size_t i = 0; i < op_.weights.size(); ++i) {
      const bool expert = i == first || i == first + 1;
      w_.weight_bytes += bytes(i) * (expert ? touched : 1);
      w_.products += elements(i) * rows_ * (expert ? share : 1);
    }
  }

  // An element of the operation's paged or slotted state of three dims.
  double state_element_bytes(swy_state_kind kind) const {
    for (const uint32_t s : op_.states) {
      const swy_tensor& desc = graph_.states[s].desc;
      if (desc.state != kind || desc.rank != 3) continue;
      const double share = s < step_.state_shares.size() ? step_.state_shares[s] : 1;
      return share * static_cast<double>(dtype_bytes(desc.dtype));
    }
    return sizeof(float);
  }

  void attention() {
    const auto a = op_.attrs_as<swy_attention_attrs>();
    const double own = rows_ / step_.sequences;
    const double seen = step_.context - (own - 1) / 2;  // positions that a row sees, on average
    w_.mixing += 2 * rows_ * seen * a.heads * a.head_dim;
    const double elements = step_.sequences * (step_.context + own) * 2 * a.kv_heads * a.head_dim;
    w_.state_bytes += elements * state_element_bytes(SWY_STATE_PAGED);
  }

  void delta() {
    const auto a = op_.attrs_as<swy_gated_delta_attrs>();
    const double state = static_cast<double>(a.value_heads) * a.key_dim * a.value_dim;
    w_.mixing += 4 * rows_ * state;
    w_.state_bytes += step_.sequences * 2 * state * state_element_bytes(SWY_STATE_SLOTTED);
  }

  const Graph& graph_;
  const GraphOp& op_;
  double rows_;
  const StepShape& step_;
  Workload w_;
};

}  // namespace

Workload workload_of(const Graph& graph, const GraphOp& op, const StepShape& step) {
  return Counter(graph, op, step).count();
}

Workload workload_of(const Program& program, const StepShape& step) {
  Workload all;
  Graph graph = graph_of(program);
  expand_named(graph, [](const Graph&, const GraphOp&, std::vector<Considered>&) { return false; });
  for (const GraphOp& op : graph.ops) {
    const Workload w = workload_of(graph, op, step);
    all.weight_bytes += w.weight_bytes;
    all.state_bytes += w.state_bytes;
    all.products += w.products;
    all.mixing += w.mixing;
  }
  return all;
}

}  // namespace switchyard::bench
