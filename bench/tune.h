// SPDX-License-Identifier: Apache-2.0
// Tuning: measures the kernels between which the planner chooses on this machine's devices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/ops.h"
#include "core/plan/tuning.h"

namespace switchyard::bench {

struct TuneRequest {
  std::vector<uint32_t> rows = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
  std::vector<uint32_t> depths = {255, 1023, 4095};  // tokens in the context before a single row
  std::string op;                                    // only this operation; "": all
  double seconds = 0.05;                             // per kernel, about
  std::vector<VariantRule> variants;
  uint32_t load_threads = 1;
  uint64_t rotate_bytes = 0;
  uint32_t threads = 1;  // of the host's team
  std::string date;      // "2026-11-21"
};

// An operation whose kernel changes, against the backend's estimate.
struct TuneChange {
  std::string device, op, shape;
  uint64_t rows = 0, context = 0;
  std::string from, to;  // kernels
  double from_us = 0, to_us = 0;
  double per_step = 1;  // operations of this shape in a step
};

// An operation at a row count that was not compared, since one of its kernels failed.
struct TuneFailure {
  std::string device, op, shape;
  uint64_t rows = 0, context = 0;
  std::string reason;  // with the kernel
};

struct TuneResult {
  std::vector<TunedDevice> devices;  // with the measurements
  std::vector<TuneChange> changes;
  std::vector<TuneFailure> failures;
  size_t measured = 0;       // operations at a row count, of which several kernels were compared
  bool interrupted = false;  // and the rest is missing
};

// Compares the kernels of every shape of operation that a device has several for: they take turns, and one that is less
// than 3% faster than the backend's own choice counts as equal to it. If `progress` returns false, the measurements so
// far are the result. If a kernel fails, the estimates keep deciding. Errors: those of planning; those of the devices,
// if they left nothing to compare.
Result<TuneResult> tune(std::shared_ptr<const Program> program, const std::vector<std::shared_ptr<Device>>& devices,
                        const PlanPolicy& policy, const TuneRequest& request, const OpProgress& progress);

}  // namespace switchyard::bench
