// SPDX-License-Identifier: Apache-2.0
// The measurements of single operations: every kernel that supports a shape of a model, at several numbers of rows.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/op_run.h"
#include "bench/op_shapes.h"
#include "bench/ops.h"

namespace switchyard::bench {

// One kernel on one shape.
struct OpCase {
  const OpShape* shape = nullptr;
  const Graph* graph = nullptr;
  swy_bucket bucket{};
  const swy_kernel* kernel = nullptr;
  StepShape step;
  double estimate_us = 0;
  bool chosen = false;  // by the planner

  std::string op() const;                                      // its name
  uint64_t rows() const;                                       // that the operation itself has
  const GraphOp& first() const { return shape->ops.front(); }  // represents all operations of the shape
};

class OpCases {
 public:
  OpCases(std::shared_ptr<const Program> program, const std::vector<std::shared_ptr<Device>>& devices,
          const PlanPolicy& policy, OpRequest request);
  OpCases(const OpCases&) = delete;
  OpCases& operator=(const OpCases&) = delete;

  // Finds them. Once. Errors: usage, for an operation that does not exist or that this model lacks.
  Status collect();
  const std::vector<OpCase>& all() const { return cases_; }
  const std::vector<OpRefusal>& refusals() const { return refusals_; }
  const OpRequest& request() const { return request_; }
  const PlanDevice& device(const OpCase& c) const { return devices_[c.shape->device]; }
  // Errors: those of the device that has its states.
  Result<Workload> workload(const OpCase& c) const;

  // A case's operations, loaded and recorded: as many as rotate_bytes needs, repeated until there are `least_ops`.
  Result<std::unique_ptr<OpRun>> record(const OpCase& c, uint32_t least_ops);
  // Compares the first operation of a case, once, with the oracle; an operation with a name with its function, and its
  // states, too. Nothing if there is no oracle, if it has no kernel for the operation, or if it would take more than
  // seconds.
  Result<std::optional<RowErrors>> errors(const OpCase& c);

 private:
  Status check_wanted() const;
  bool decodes(uint32_t rows) const { return rows == 1 || request_.decode; }
  swy_bucket bucket(uint32_t rows) const;
  StepShape step(const swy_bucket& b) const;
  Status compare_states(const OpContext& got, const OpContext& want, const GraphOp& op, RowErrors& worst) const;
  void collect(const OpShape& shape, const Graph& graph, const swy_bucket& b);
  std::span<const GraphOp> rotation(const OpCase& c) const;
  OpContext context(const OpCase& c);
  Status load(const OpCase& c, std::span<const GraphOp> ops);

  std::shared_ptr<const Program> program_;
  std::vector<std::shared_ptr<Device>> owners_;
  Graph graph_;
  std::vector<PlanDevice> devices_;
  std::vector<PlanDevice> readers_;  // of weights: the devices, and the oracle
  PlanPolicy policy_;
  OpRequest request_;
  uint32_t vocab_ = 0;
  WeightStore weights_;
  std::vector<Plan> plans_;                   // per row count
  std::vector<std::vector<OpShape>> shapes_;  // likewise
  std::vector<OpCase> cases_;
  std::vector<OpRefusal> refusals_;
  bool too_many_logits_ = false;  // for an operation to be measured at some of the rows
};

}  // namespace switchyard::bench
