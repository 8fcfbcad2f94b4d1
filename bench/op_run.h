// SPDX-License-Identifier: Apache-2.0
// One kernel on operations of one shape, recorded by themselves.
#pragma once

#include <memory>
#include <vector>

#include "bench/op_states.h"
#include "core/engine/step_builder.h"
#include "core/engine/weights.h"
#include "core/plan/plan.h"
#include "core/plugin/buffer.h"

namespace switchyard::bench {

inline constexpr double kPatience = 10;   // times the wanted seconds, for kernels that are slow
inline constexpr uint32_t kLeastOps = 8;  // in a list, so that starting the team does not count

// Shared by the operations of one run.
struct OpContext {
  const Graph* graph = nullptr;  // types of activations as the plan has them; weights and states are the program's
  PlanDevice device;
  uint32_t device_index = 0;       // in the weights' list
  WeightStore* weights = nullptr;  // loads the missing weights
  swy_bucket bucket{};             // of one sequence, or of one row each
  uint32_t position = 0;           // of each sequence's first row
  uint32_t vocab = 0;              // token ids stay below
  OpStates* states = nullptr;      // that are compared; NULL: zeros, for each operation its own
};

// A list that holds operations one after another, each with its own weights and states, on activations of random
// numbers: the rotation keeps weights from staying in caches that a whole step would sweep.
class OpRun {
 public:
  // Allocates, loads and records `ops`, over and over until there are `least_ops`. Errors: those of the device.
  static Result<std::unique_ptr<OpRun>> create(const OpContext& context, const swy_kernel& kernel,
                                               std::span<const GraphOp> ops, uint32_t least_ops);
  ~OpRun();
  OpRun(const OpRun&) = delete;
  OpRun& operator=(const OpRun&) = delete;

  // Runs the list once, to its end.
  Status run();
  uint32_t ops() const { return count_; }  // in the list
  // The inputs of all operations, each as [rows, width]: random numbers until they are set.
  Result<std::vector<std::vector<float>>> inputs() const;
  Status set_input(size_t i, const std::vector<float>& numbers);
  // The results of the last operation, each output as [rows, width]. After a run.
  Result<std::vector<std::vector<float>>> outputs() const;

 private:
  OpRun(const OpContext& context, const swy_kernel& kernel) : context_(context), kernel_(kernel) {}
  Status lay_out(const GraphOp& op);
  Status fill(const GraphOp& op);
  Status write_step();
  Status allocate_states(const GraphOp& op, std::vector<swy_binding>& bindings);
  Status record(const GraphOp& op, const std::vector<swy_binding>& states);
  Result<std::vector<float>> numbers(uint32_t value, size_t place) const;
  swy_binding place(size_t i) const { return arena_.slice(offsets_[i], sizes_[i]); }

  OpContext context_;
  const swy_kernel& kernel_;
  Graph graph_;  // with the types that the kernel takes
  swy_prepared prepared_{};
  std::vector<uint64_t> offsets_, sizes_;  // of inputs, then outputs, then the workspace
  std::vector<uint32_t> inputs_, outputs_;
  DeviceBuffer arena_, step_, tokens_;
  std::vector<DeviceBuffer> states_;
  swy_list* list_ = nullptr;
  uint32_t count_ = 0;
};

}  // namespace switchyard::bench
