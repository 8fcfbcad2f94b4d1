// SPDX-License-Identifier: Apache-2.0
#include "core/engine/pending.h"

#include "switchyard/sdk/operands.hpp"

namespace switchyard {
namespace {

GraphTensor pending_state(const GraphOp& op, uint32_t rows) {
  const auto a = op.attrs_as<swy_gated_delta_attrs>();
  const uint64_t channels = 2 * uint64_t{a.key_heads} * a.key_dim + uint64_t{a.value_heads} * a.value_dim;
  GraphTensor state{op.name + ".pending"};
  state.desc.struct_size = sizeof state.desc;
  state.desc.dtype = SWY_F32;
  state.desc.state = SWY_STATE_SLOTTED;
  state.desc.rank = 2;
  state.desc.dims[0] = rows;
  state.desc.dims[1] = channels + 2 * uint64_t{a.value_heads};
  state.desc.dims[2] = state.desc.dims[3] = 1;
  return state;
}

}  // namespace

bool add_pending_rows(Graph& graph, uint32_t rows) {
  bool any = false;
  for (const GraphOp& op : graph.ops) {
    const bool delta = op.id == SWY_OP_GATED_DELTA && op.revision == 1;
    any = any || delta;
    for (const uint32_t s : op.states) {
      if (!delta && graph.states[s].desc.state == SWY_STATE_SLOTTED) return false;
    }
  }
  if (!any) return false;
  constexpr uint32_t kPlace = swy::Operands<SWY_OP_GATED_DELTA>::state("pending");
  for (GraphOp& op : graph.ops) {
    if (op.id != SWY_OP_GATED_DELTA || op.states.size() != kPlace) continue;
    graph.states.push_back(pending_state(op, rows));
    op.states.push_back(static_cast<uint32_t>(graph.states.size() - 1));
    op.revision = 2;
  }
  return true;
}

}  // namespace switchyard
