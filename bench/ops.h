// SPDX-License-Identifier: Apache-2.0
// Times of single operations: every distinct shape of a model, at several row counts, with every kernel that takes it.
#pragma once

#include <compare>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/workload.h"
#include "core/plan/plan.h"
#include "core/plugin/plugin.h"

namespace switchyard::bench {

struct OpRequest {
  std::vector<uint32_t> rows = {1, 16, 64, 512, 2048};
  std::string op;       // "linear_add"; "": all that the plan runs
  bool decode = false;  // several rows are one each of as many sequences, not a prompt of one
  uint32_t depth =
      1024;  // tokens in the context before the row of a sequence (with one row, or --decode); others begin at 0
  double seconds = 0.2;  // per kernel, about
  bool deterministic = false;
  std::vector<VariantRule> variants;
  uint32_t load_threads = 1;
  uint64_t rotate_bytes = 0;       // weights of as many layers take turns as reach this; 0: of one
  std::shared_ptr<Device> oracle;  // also computes the smaller operations, for their errors; NULL: no errors
};

// Of the rows of an operation's worst output, against the oracle's. With d = got - wanted over a row of n elements, a
// row's error is the larger of |d| / |wanted| (Euclidean) and max |d_i| / (8 rms(wanted)), so that one wrong element
// cannot hide in a wide row; infinite for a result that is no number.
struct RowErrors {
  double worst = 0;
  double mean = 0;
  double rms = 0;  // root mean square of all d, as a share of the oracle's
  auto operator<=>(const RowErrors&) const = default;
};
RowErrors row_errors(std::span<const float> got, std::span<const float> want, uint64_t width);

// One kernel on one shape.
struct OpTime {
  std::string device;  // "cpu:0"
  std::string op;      // "linear_add"
  std::string shape;   // "2048 -> 8192+4096, i4/32"
  std::string kernel;  // "linear_add.vector"
  uint32_t rows = 0;
  size_t count = 0;     // operations of this shape in a step
  bool chosen = false;  // by the planner
  double estimate_us = 0;
  Samples samples;  // of one operation
  Workload work;
  std::optional<RowErrors> errors;
};

// A kernel that does not take a shape, or that failed on it.
struct OpRefusal {
  std::string op, shape, kernel, reason;
  uint32_t rows = 0;
  bool failed = false;  // it took the shape, and `reason` is what went wrong when it ran
};

struct OpTimes {
  std::vector<OpTime> times;
  std::vector<OpRefusal> refusals;
  bool interrupted = false;  // and the rest is missing
};

// Called before each kernel; returning false stops.
using OpProgress = std::function<bool(size_t done, size_t total)>;

// A kernel that fails costs only its own times. If `progress` returns false, the measurements so far are the result.
// Errors: usage, for an operation that does not exist or that this model lacks; those of planning.
Result<OpTimes> measure_ops(std::shared_ptr<const Program> program, const std::vector<std::shared_ptr<Device>>& devices,
                            const PlanPolicy& policy, const OpRequest& request, const OpProgress& progress);

}  // namespace switchyard::bench
