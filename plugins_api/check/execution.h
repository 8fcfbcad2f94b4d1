// SPDX-License-Identifier: Apache-2.0
// One kernel recorded for one case's bucket on a device, to be run on the steps of that case, or on parts of them.
#pragma once

#include "plugins_api/check/outcome.h"
#include "plugins_api/check/plugin.h"
#include "plugins_api/check/state_memory.h"

namespace switchyard::check {

// The types that the free activations have.
struct Types {
  swy_dtype input = SWY_F32, output = SWY_F32;
};

// The case's operation as the ABI passes it. Points into the case, which must stay.
class OpView {
 public:
  explicit OpView(const Case& c);
  OpView(const OpView&) = delete;
  OpView& operator=(const OpView&) = delete;
  const swy_op* get() const { return &op_; }

 private:
  std::vector<const swy_tensor*> inputs_, weights_, states_, outputs_;
  swy_op op_{};
};

// Gives the free activations these types, and rounds the inputs to values of the types.
void set_types(Case& c, Types types);

class Execution {
 public:
  // Prepares, packs, allocates and records. Throws Failure. `in_place`: output 0 is input 0's memory.
  Execution(const Plugin& plugin, const swy_kernel& kernel, const Case& c, bool in_place = false);
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  // Brings the states and tokens of `c` in, then runs its steps. `c` has the operation and at most the bucket that was
  // recorded. All that a kernel may not read is poison. Throws Failure when a call fails, or when memory changed that
  // the operation does not write.
  Outcome run(const Case& c);

 private:
  void prepare_weight(uint32_t index, uint32_t layout);
  void record();
  void run_step(const Case& c, const Step& step, std::vector<Matrix>& outputs);
  Matrix read_output(const Step& step, uint32_t index) const;
  void expect_untouched_inputs(const Case& c, const Step& step) const;

  const Plugin& plugin_;
  const swy_kernel& kernel_;
  Case case_;  // the one that was recorded
  OpView op_;
  const bool in_place_;
  swy_list* list_ = nullptr;
  uint64_t submissions_ = 0;
  std::vector<Memory> inputs_, outputs_, weights_, other_;  // other_: step, tokens, workspace
  std::vector<StateMemory> states_;
  std::vector<std::vector<std::byte>> weight_bytes_;  // as they were given to the device
};

// Whether the kernel accepts the case, by its masks, its row limits and `supports`. If not, *why is the reason, and
// *by_machine whether another machine or other settings would accept it.
bool takes(const Plugin& plugin, const swy_kernel& kernel, const Case& c, std::string* why, bool* by_machine = nullptr);

}  // namespace switchyard::check
