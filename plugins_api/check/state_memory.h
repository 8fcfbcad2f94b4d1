// SPDX-License-Identifier: Apache-2.0
// A state in a plugin's memory: all its slots or pages, as the plugin lays them out.
#pragma once

#include "plugins_api/check/case.h"
#include "plugins_api/check/plugin.h"

namespace switchyard::check {

class StateMemory {
 public:
  // State `index` of the case, which `op` describes. Throws Failure.
  StateMemory(const Plugin& plugin, const swy_op* op, const Case& c, uint32_t index);

  swy_binding binding() const { return memory_.binding(); }
  uint64_t unit_bytes() const { return unit_bytes_; }  // of a slot or page, as the device keeps it
  void expect_guards() const { memory_.expect_guards(); }
  // Poisons everything, then brings the state's content in.
  void bring(const State& state, uint32_t page_size) const;
  // The present contents, as State::content.
  std::vector<double> content(const State& state, uint32_t page_size) const;

 private:
  const Plugin* plugin_;
  std::string name_;
  uint64_t unit_bytes_;
  Memory memory_;
};

}  // namespace switchyard::check
