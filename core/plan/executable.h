// SPDX-License-Identifier: Apache-2.0
// Executable: a plan recorded into command lists, ready to be submitted once per step.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/plan/observer.h"
#include "core/plan/plan.h"
#include "core/plan/refusals.h"
#include "core/plugin/buffer.h"

namespace switchyard {

// A value that lies in memory of its own, not in the arena. Several values may be in the same place, also those of
// other plans, where an order of submissions makes that safe.
struct BoundValue {
  uint32_t value = 0, device = 0;
  const DeviceBuffer* memory = nullptr;
  uint64_t bytes = 0;  // from its beginning
};

// Memory that recording binds in addition to the plan's own values. It outlives the executable.
struct ExecutableInputs {
  // A weight (by index in the graph) on a device in a layout.
  std::function<Result<swy_binding>(uint32_t weight, uint32_t device, uint32_t layout)> weight;
  std::vector<swy_binding> states;                    // per state
  std::vector<swy_binding> steps;                     // per device: the step's block
  std::vector<swy_binding> tokens;                    // per device: the token buffer
  std::vector<std::shared_ptr<DeviceBuffer>> arenas;  // per device, at least plan.arena_bytes large
  std::vector<BoundValue> bound = {};
  CancelCheck cancelled = {};  // stops recording
};

class Executable {
 public:
  // If a kernel or range refuses to be recorded, the error is `unsupported`, and `refused` gets it, with all nodes of
  // the plan that are of the same kernel and shape.
  static Result<std::unique_ptr<Executable>> record(Plan plan, const std::vector<PlanDevice>& devices,
                                                    ExecutableInputs inputs, StepObserver* observer = nullptr,
                                                    std::vector<Refusal>* refused = nullptr);
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  // Submits the lists of one part of the step: everything up to a head that has its own lists, or that head. On
  // synchronous devices the work is done on return; on others `read` waits for it. [device-serial, no-alloc]
  Status submit(bool head, const StepWatch& watch = {});

  // Bytes of a result, from its device. [device-serial]
  Status read(uint32_t value, uint64_t offset, std::span<std::byte> to) const;
  // Writes an input of the graph, from its first row on, before a step. [device-serial]
  Status write(uint32_t value, std::span<const std::byte> from) const;
  // As `read`, without waiting: `to` is filled when `done` is reached. The device is asynchronous. [no-alloc]
  Status read_later(uint32_t value, std::span<std::byte> to, const swy_timeline_point& done) const;
  // The device that makes a result, by index.
  uint32_t device_of(uint32_t value) const;
  // The same without a copy; NULL when the host cannot see the device's memory.
  const std::byte* view(uint32_t value) const;

  // The one list of a part of the step, which is all of it; NULL: there are several, or copies.
  const PlanSegment* only_list(bool head) const;
  // Records the nodes of a segment once more, into another list of its device.
  Status record_nodes(const PlanSegment& segment, swy_list* list, std::vector<Refusal>* refused = nullptr);
  // What a list's beginning needs, for so long as the executable lives.
  swy_list_info list_info(const PlanSegment& segment) const;

  const Plan& plan() const { return plan_; }
  // The entry that waits for the last list, and which that is (CallSite::entry).
  const char* waits_for() const { return recorded_.empty() ? "timeline_wait" : recorded_.back().wait; }

 private:
  struct Recorded {
    PlanSegment segment;
    swy_list* list = nullptr;                                     // of a segment that is no copy
    const char *submit = "list_submit", *wait = "timeline_wait";  // and which list it is, to tell of a stall there
    swy_binding from{}, to{};                                     // of a copy
    uint64_t reached = 0;  // the value of its device's timeline when this step's submission is done
  };

  Executable(Plan plan, const std::vector<PlanDevice>& devices, ExecutableInputs inputs);
  Status record_segment(const PlanSegment& segment, StepObserver* observer, std::vector<Refusal>* refused);
  Status record_node(uint32_t node, swy_list* list, std::vector<Refusal>* refused);
  std::vector<Refusal> refusals_like(const PlanNode& node, const std::string& reason) const;
  Status create_timelines();
  Status submit_list(Recorded& recorded);
  Status copy(const Recorded& recorded, SubmitCounts* counts);
  bool synchronous(uint32_t device) const;
  Result<swy_binding> place(uint32_t value, uint32_t device) const;
  const Placement* result(uint32_t value) const;
  const BoundValue* bound(uint32_t value) const;
  void find_results();

  Plan plan_;
  const std::vector<PlanDevice>& devices_;
  ExecutableInputs inputs_;
  std::vector<Recorded> recorded_;         // per segment
  std::vector<Placement> results_;         // by value: where the device that makes it has each result
  std::vector<Placement> inputs_at_;       // likewise: where the device that reads it first has each input
  std::vector<swy_timeline*> timelines_;   // per device; NULL where none waits, or copies do all the waiting
  std::vector<uint64_t> timeline_values_;  // per device: the last one to be signalled
  std::vector<std::byte> staging_;         // for copies between devices that do not share memory
};

}  // namespace switchyard
