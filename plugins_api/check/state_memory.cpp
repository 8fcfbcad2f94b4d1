// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/state_memory.h"

#include <algorithm>

namespace switchyard::check {
namespace {

// Of a slot or page of state `index` of the case, as the device keeps it.
uint64_t bytes_of_unit(const Plugin& plugin, const swy_op* op, const Case& c, uint32_t index) {
  swy_state_layout layout{};
  layout.struct_size = sizeof layout;
  PluginError e;
  e.expect_ok(plugin.api().state_layout(plugin.device(), op, index, &c.bucket, &layout, e.get()),
              text("state_layout of state ", index));
  return layout.unit_bytes;
}

}  // namespace

StateMemory::StateMemory(const Plugin& plugin, const swy_op* op, const Case& c, uint32_t index)
    : plugin_(&plugin),
      name_(text("state ", index)),
      unit_bytes_(bytes_of_unit(plugin, op, c, index)),
      memory_(plugin, SWY_MEMORY_DEVICE, unit_bytes_ * c.states[index].units, name_) {}

void StateMemory::bring(const State& state, uint32_t page_size) const {
  memory_.poison();
  for (uint64_t u = 0; u < state.units && !state.own; ++u) {
    const swy_binding unit = memory_.part(u * unit_bytes_, unit_bytes_);
    PluginError e;
    e.expect_ok(plugin_->api().state_import(plugin_->device(), &state.desc, page_size, &unit,
                                            state.content.data() + u * state.unit, state.unit * 4, e.get()),
                "state_import of " + name_);
  }
}

std::vector<double> StateMemory::content(const State& state, uint32_t page_size) const {
  std::vector<float> all(state.units * state.unit);
  for (uint64_t u = 0; u < state.units; ++u) {
    const swy_binding unit = memory_.part(u * unit_bytes_, unit_bytes_);
    PluginError e;
    if (state.own) {  // its first bytes, whatever they mean
      e.expect_ok(plugin_->api().read(plugin_->device(), all.data() + u * state.unit, unit.buffer, unit.offset,
                                      std::min(unit_bytes_, state.unit * 4), nullptr, e.get()),
                  "reading " + name_);
      continue;
    }
    e.expect_ok(plugin_->api().state_export(plugin_->device(), &state.desc, page_size, &unit,
                                            all.data() + u * state.unit, state.unit * 4, e.get()),
                "state_export of " + name_);
  }
  return {all.begin(), all.end()};
}

}  // namespace switchyard::check
