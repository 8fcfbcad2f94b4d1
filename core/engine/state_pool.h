// SPDX-License-Identifier: Apache-2.0
// StatePool: the memory of a model's states, and the owners of its slots and pages. Both are counted, since sequences
// that were forked share slots and pages until one of them changes these. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "core/plan/plan.h"
#include "core/plugin/buffer.h"

namespace switchyard {

inline constexpr uint32_t kNoUnit = UINT32_MAX;

// Slots, or pages. Allocates only when it is made.
class UnitPool {
 public:
  explicit UnitPool(uint32_t count = 0);

  uint32_t take();  // kNoUnit when none is left
  void share(uint32_t unit) { ++users_[unit]; }
  void release(uint32_t unit);
  bool shared(uint32_t unit) const { return users_[unit] > 1; }

  uint32_t count() const { return static_cast<uint32_t>(users_.size()); }
  uint32_t free() const { return static_cast<uint32_t>(free_.size()); }

 private:
  std::vector<uint32_t> users_, free_;
};

class StatePool {
 public:
  static constexpr uint32_t kPageSize = 64;  // tokens

  // One state's memory: a slot, or a page of kPageSize tokens.
  struct Unit {
    const PlanDevice* device = nullptr;  // NULL: no operation has this state
    const GraphTensor* state = nullptr;
    const DeviceBuffer* memory = nullptr;  // from `allocate` on
    uint64_t unit_bytes = 0;               // as the device has it
    uint64_t canonical_bytes = 0;          // in the canonical form
    bool paged = false;
    bool counts = false;   // the sampler's state, which is not part of what a session has seen
    bool pending = false;  // pending rows, which are no part of what a snapshot has
    bool layer = false;    // of the multi-token prediction layer
    swy_binding at(uint32_t unit) const { return memory->slice(unit * unit_bytes, unit_bytes); }
  };

  // The states of a plan, with nothing allocated yet. `pool` has the sizes that the devices are asked for; `counts` is
  // the sampler's state. Planner and devices outlive it.
  Status describe(const Planner& planner, const std::vector<PlanDevice>& devices, const swy_bucket& pool,
                  uint32_t counts);
  // Those of the multi-token prediction layer, a function of the same program.
  Status describe_layer(const Planner& planner, const std::vector<PlanDevice>& devices, const swy_bucket& pool);
  // Bytes of one slot, and of one page, of all states.
  uint64_t slot_bytes() const { return bytes_of(false); }
  uint64_t page_bytes() const { return bytes_of(true); }
  void resize(uint32_t slots, uint32_t pages);
  // Errors: out_of_device_memory, and the devices' own.
  Status allocate();

  const std::vector<Unit>& units() const { return units_; }
  // Whether sequences have states besides pages: these cannot be cut back.
  bool has_slotted() const;
  const std::vector<DeviceBuffer>& buffers() const { return buffers_; }  // per state of the graph
  UnitPool& slots() { return slots_; }
  UnitPool& pages() { return pages_; }
  const UnitPool& slots() const { return slots_; }
  const UnitPool& pages() const { return pages_; }
  uint32_t sessions() const { return sessions_; }  // that live now

 private:
  friend class Session;  // which counts itself
  Status add(const Planner& planner, const std::vector<PlanDevice>& devices, const swy_bucket& pool, uint32_t counts,
             bool layer);
  uint64_t bytes_of(bool paged) const;

  std::vector<Unit> units_;            // per state
  std::vector<DeviceBuffer> buffers_;  // likewise
  UnitPool slots_, pages_;
  uint32_t sessions_ = 0;
};

}  // namespace switchyard
