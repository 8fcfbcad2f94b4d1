// How far the kernels that a model runs are from the reference, operation by operation.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/ops.h"

namespace switchyard::bench {

struct OpErrorRequest {
  std::vector<uint32_t> rows = {1, 17, 64};  // of the steps that are tried
  uint32_t depth = 64;                       // tokens in the context before a single row
  bool deterministic = false;
  std::vector<VariantRule> variants;
  uint32_t load_threads = 1;
};

// One distinct shape of operation of the plan, with the kernel that the plan runs it with; the worst over the row
// counts that it runs it at.
struct OpError {
  std::string op;      // "linear_add"
  std::string shape;   // "2048 -> 8192+4096, i4/32"
  std::string kernel;  // "linear_add.vector"
  uint32_t rows = 0;   // of the step with the worst row
  double worst_row = 0, mean = 0;
  std::optional<double> budget;  // none: no number was agreed on
};

// Operations that the oracle cannot compute, or not in seconds, are left out. `policy` and `devices` are those of the
// device under test; all devices share a host. Errors: those of planning and of the devices; cancelled.
Result<std::vector<OpError>> op_errors(
    std::shared_ptr<const Program> program, const std::vector<std::shared_ptr<Device>>& devices,
    const PlanPolicy& policy, std::shared_ptr<Device> reference, const OpErrorRequest& request,
    const OpProgress& progress = [](size_t, size_t) { return true; });

}  // namespace switchyard::bench
