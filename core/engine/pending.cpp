// SPDX-License-Identifier: Apache-2.0
#include "core/engine/pending.h"

#include <span>
#include <string_view>

#include "core/program/shape.h"

namespace switchyard {
namespace {

struct Pending {
  const swy_operand_spec* operand;
  uint32_t place;
};

std::optional<Pending> find_pending(uint32_t id, uint32_t revision) {
  const swy_op_spec* spec = swy_find_op(id, revision);
  if (spec == nullptr) return std::nullopt;
  uint32_t place = 0;
  for (const swy_operand_spec& o : std::span(spec->operands, spec->operand_count)) {
    if (o.list != SWY_REF_STATE) continue;
    if (o.name == std::string_view("pending")) return Pending{&o, place};
    ++place;
  }
  return std::nullopt;
}

// What the operation may have from its next revision on.
std::optional<Pending> may_have(const GraphOp& op) {
  if (!op.named.empty() || pending_place(op)) return std::nullopt;
  const auto next = find_pending(op.id, op.revision + 1);
  return next && next->place == op.states.size() ? next : std::nullopt;
}

// [rows, elements of a row]
GraphTensor state_of(const GraphOp& op, const swy_operand_spec& operand, uint32_t rows) {
  GraphTensor state{op.name + ".pending"};
  state.desc.struct_size = sizeof state.desc;
  state.desc.dtype = SWY_F32;
  state.desc.state = operand.state;
  state.desc.rank = 2;
  state.desc.dims[0] = rows;
  const ShapeNames names(*swy_find_op(op.id, op.revision + 1), op.attrs);
  state.desc.dims[1] = evaluate(dimensions_of(operand.shape)[1], names).value_or(0);
  state.desc.dims[2] = state.desc.dims[3] = 1;
  return state;
}

}  // namespace

std::optional<uint32_t> pending_place(const GraphOp& op) {
  const auto pending = op.named.empty() ? find_pending(op.id, op.revision) : std::nullopt;
  return pending && pending->place < op.states.size() ? std::optional(pending->place) : std::nullopt;
}

bool add_pending_rows(Graph& graph, uint32_t rows) {
  bool any = false;
  for (const GraphOp& op : graph.ops) {
    const bool may = may_have(op).has_value();
    any = any || may;
    for (const uint32_t s : op.states) {
      if (!may && graph.states[s].desc.state == SWY_STATE_SLOTTED) return false;
    }
  }
  if (!any) return false;
  for (GraphOp& op : graph.ops) {
    const auto pending = may_have(op);
    if (!pending) continue;
    graph.states.push_back(state_of(op, *pending->operand, rows));
    op.states.push_back(static_cast<uint32_t>(graph.states.size() - 1));
    ++op.revision;
  }
  return true;
}

}  // namespace switchyard
