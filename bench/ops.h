// Times of single operations: every distinct shape of a model, at several row counts, with every kernel that takes it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/workload.h"
#include "core/plan/plan.h"
#include "core/plugin/plugin.h"

namespace switchyard::bench {

struct OpRequest {
  std::vector<uint32_t> rows = {1, 16, 64, 512, 2048};
  std::string op;         // "linear_add"; "": all that the plan runs
  uint32_t depth = 1024;  // tokens in the context before a single row; several rows begin at 0
  double seconds = 0.2;   // per kernel, about
  bool deterministic = false;
  std::vector<VariantRule> variants;
  uint32_t load_threads = 1;
  uint64_t rotate_bytes = 0;       // weights of as many layers take turns as reach this; 0: of one
  std::shared_ptr<Device> oracle;  // also computes the smaller operations, for their errors; NULL: no errors
};

// One kernel on one shape.
struct OpTime {
  std::string op;      // "linear_add"
  std::string shape;   // "2048 -> 8192+4096, i4/32"
  std::string kernel;  // "linear_add.vector"
  uint32_t rows = 0;
  size_t count = 0;     // operations of this shape in a step
  bool chosen = false;  // by the planner
  double estimate_us = 0;
  Samples samples;  // of one operation
  Workload work;
  // Root mean square of the difference from the oracle, as a share of the oracle's, of the worst output.
  std::optional<double> error;
};

// A kernel that does not take a shape.
struct OpRefusal {
  std::string op, shape, kernel, reason;
  uint32_t rows = 0;
};

struct OpTimes {
  std::vector<OpTime> times;
  std::vector<OpRefusal> refusals;
};

// Called before each kernel; returning false stops with Code::cancelled.
using OpProgress = std::function<bool(size_t done, size_t total)>;

// Errors: usage, for an operation that does not exist or that this model lacks; those of planning and of the devices.
Result<OpTimes> measure_ops(std::shared_ptr<const Program> program, const std::vector<std::shared_ptr<Device>>& devices,
                            const PlanPolicy& policy, const OpRequest& request, const OpProgress& progress);

}  // namespace switchyard::bench
