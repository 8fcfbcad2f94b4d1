// SPDX-License-Identifier: Apache-2.0
#include "core/engine/state_pool.h"

#include <algorithm>

#include "core/base/saturate.h"
#include "core/engine/pending.h"
#include "core/plugin/call.h"

namespace switchyard {

UnitPool::UnitPool(uint32_t count) : users_(count) {
  free_.reserve(count);
  for (uint32_t i = count; i-- > 0;) free_.push_back(i);
}

uint32_t UnitPool::take() {
  if (free_.empty()) return kNoUnit;
  const uint32_t unit = free_.back();
  free_.pop_back();
  users_[unit] = 1;
  return unit;
}

void UnitPool::release(uint32_t unit) {
  if (--users_[unit] == 0) free_.push_back(unit);
}

Status StatePool::describe(const Planner& planner, const std::vector<PlanDevice>& devices, const swy_bucket& pool,
                           uint32_t counts) {
  units_.resize(planner.graph().states.size());
  return add(planner, devices, pool, counts, false);
}

Status StatePool::describe_layer(const Planner& planner, const std::vector<PlanDevice>& devices,
                                 const swy_bucket& pool) {
  return add(planner, devices, pool, kNoUnit, true);
}

Status StatePool::add(const Planner& planner, const std::vector<PlanDevice>& devices, const swy_bucket& pool,
                      uint32_t counts, bool layer) {
  const Graph& graph = planner.graph();
  for (const GraphOp& op : graph.ops) {
    for (uint32_t i = 0; i < op.states.size(); ++i) {
      Unit& unit = units_[op.states[i]];
      unit.state = &graph.states[op.states[i]];
      unit.device = &devices[planner.state_device()[op.states[i]]];
      const swy_tensor& desc = unit.state->desc;
      unit.paged = desc.state == SWY_STATE_PAGED;
      unit.counts = op.states[i] == counts;
      unit.pending = pending_place(op) == i;
      unit.layer = layer;
      unit.canonical_bytes = canonical_bytes(desc, kPageSize);
      const OpView view(graph, op, pool);
      swy_state_layout layout{};
      layout.struct_size = sizeof layout;
      PluginError e;
      const auto ask = [&](swy_error* x) {
        return unit.device->api->state_layout(unit.device->handle, view.get(), i, &pool, &layout, x);
      };
      SWY_TRY(e.status(call_plugin(*unit.device, "state_layout", e.get(), ask),
                       unit.device->name + ": state " + unit.state->name));
      unit.unit_bytes = layout.unit_bytes;
    }
  }
  return {};
}

uint64_t StatePool::bytes_of(bool paged) const {
  uint64_t bytes = 0;
  for (const Unit& u : units_) bytes = u.paged == paged ? saturating_add(bytes, u.unit_bytes) : bytes;
  return bytes;
}

bool StatePool::has_slotted() const {
  return std::any_of(units_.begin(), units_.end(),
                     [](const Unit& u) { return u.device != nullptr && !u.paged && !u.counts; });
}

void StatePool::resize(uint32_t slots, uint32_t pages) {
  slots_ = UnitPool(slots);
  pages_ = UnitPool(pages);
}

Status StatePool::allocate() {
  buffers_.resize(units_.size());
  for (size_t s = 0; s < units_.size(); ++s) {
    Unit& u = units_[s];
    if (u.device == nullptr) continue;
    constexpr uint64_t kMost = uint64_t{1} << 60;
    const uint64_t bytes = saturating_mul(u.unit_bytes, u.paged ? pages_.count() : slots_.count());
    if (bytes > kMost) return error(Code::out_of_device_memory, "state {} takes more than 2^60 bytes", u.state->name);
    SWY_LET(buffers_[s], DeviceBuffer::allocate(*u.device, SWY_MEMORY_DEVICE, bytes, "state " + u.state->name));
    u.memory = &buffers_[s];
  }
  return {};
}

}  // namespace switchyard
