// SPDX-License-Identifier: Apache-2.0
// How far the kernels that a model runs are from the reference, operation by operation.
#pragma once

#include <memory>
#include <vector>

#include "bench/ops.h"
#include "bench/report.h"

namespace switchyard::bench {

struct OpErrorRequest {
  std::vector<uint32_t> rows = {1, 17, 64};  // of the steps that are tried
  uint32_t depth = 64;                       // tokens in the context before a single row
  bool deterministic = false;
  std::vector<VariantRule> variants;
  uint32_t load_threads = 1;
};

// Per distinct shape of operation of the plan and kernel that the plan runs it with: the step with the worst row. `op`
// includes the shape: "linear_add 4096 -> 2048, i4/32". No budgets. Operations that the oracle cannot compute, or not
// in seconds, are left out. `policy` and `devices` are those of the device under test; all devices share a host. If
// `progress` returns false, the results so far are returned. Errors: those of planning and of the devices.
Result<std::vector<OpError>> op_errors(
    std::shared_ptr<const Program> program, const std::vector<std::shared_ptr<Device>>& devices,
    const PlanPolicy& policy, std::shared_ptr<Device> reference, const OpErrorRequest& request,
    const OpProgress& progress = [](size_t, size_t) { return true; });

}  // namespace switchyard::bench
