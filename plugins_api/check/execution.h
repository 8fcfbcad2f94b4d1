// SPDX-License-Identifier: Apache-2.0
// One kernel recorded for one case's bucket on a device, to be run on the steps of that case, or on parts of them.
#pragma once

#include "plugins_api/check/forms.h"
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
  explicit OpView(const Case& c, Form form = Form::kOwn);
  OpView(const OpView&) = delete;
  OpView& operator=(const OpView&) = delete;
  const swy_op* get() const { return op_; }
  void set_layout(uint32_t weight, uint32_t layout) { weights_[weight]->layout = layout; }

 private:
  std::vector<swy_tensor*> copies(const auto& list);
  Forms forms_;
  std::vector<swy_tensor*> inputs_, weights_, states_, outputs_;
  const swy_op* op_;
};

// Gives the free activations these types, and rounds the inputs to values of the types.
void set_types(Case& c, Types types);

class Execution;

// How an execution differs from what is usual.
struct Placement {
  bool in_place = false;  // output 0 is input 0's memory
  swy_memory_type outputs = SWY_MEMORY_DEVICE;
  Form form = Form::kOwn;  // of what the plugin is given
  // One with the same weights: what it packed into the same layouts is not packed again.
  const Execution* like = nullptr;
};

class Execution {
 public:
  // Prepares, packs, allocates and records. Throws Failure.
  Execution(const Plugin& plugin, const swy_kernel& kernel, const Case& c, Placement placement = {});
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  // Brings the states and tokens of `c` in, then runs its steps. `c` has the operation and at most the bucket that was
  // recorded. All that a kernel may not read is poison; in later runs the workspace is as the first one left it. Throws
  // Failure when a call fails, or when memory changed that the operation does not write.
  Outcome run(const Case& c);

  // Submits the list once more, on the inputs and the step of the last run.
  void submit(const swy_submit* submit) const;
  // Until all that was submitted has run.
  void wait() const;
  const Memory& output(uint32_t index) const { return outputs_[index]; }

 private:
  void prepare_weight(uint32_t index, uint32_t layout);
  Shared<std::byte> packed(uint32_t index, uint32_t layout) const;
  void record();
  void run_step(const Case& c, const Step& step, std::vector<Matrix>& outputs);
  Matrix read_output(const Step& step, uint32_t index) const;
  void expect_untouched_inputs(const Case& c, const Step& step) const;

  const Plugin& plugin_;
  const swy_kernel& kernel_;
  Case case_;  // the one that was recorded
  Forms forms_;
  OpView op_;
  const Placement placement_;
  swy_list* list_ = nullptr;
  uint64_t submissions_ = 0;
  std::vector<Memory> inputs_, outputs_, weights_, other_;  // other_: step, tokens, workspace
  std::vector<StateMemory> states_;
  std::vector<uint32_t> layouts_;                // of the weights
  std::vector<Shared<std::byte>> weight_bytes_;  // as they were given to the device
};

// Whether the kernel accepts the case, by its masks, its row limits and `supports`. If not, *why is the reason, and
// *by_machine whether another machine or other settings would accept it.
bool takes(const Plugin& plugin, const swy_kernel& kernel, const Case& c, std::string* why, bool* by_machine = nullptr,
           Form form = Form::kOwn);

}  // namespace switchyard::check
