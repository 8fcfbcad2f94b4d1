// SPDX-License-Identifier: Apache-2.0
// What the reference makes of one operation, for the errors of other kernels.
#pragma once

#include <optional>
#include <vector>

#include "bench/op_run.h"

namespace switchyard::bench {

// The reference's kernel for an operation; for an operation with a name its kernels for the operations of the function
// that does the same, one after another. Described encodings are decoded to fp32.
class OpOracle {
 public:
  // Nothing if the device has no kernel for one of them.
  static std::optional<OpOracle> find(const Graph& graph, const GraphOp& op, const std::vector<PlanDevice>& devices,
                                      uint32_t device, const swy_bucket& bucket);

  // The operation's outputs, each [rows, width], from these inputs. `context` names the reference; its graph is not
  // used. Errors: those of the device.
  Result<std::vector<std::vector<float>>> run(OpContext context, const std::vector<std::vector<float>>& inputs) const;

 private:
  Graph graph_;  // of these operations alone
  std::vector<const swy_kernel*> kernels_;
  std::vector<uint32_t> inputs_, outputs_;
};

}  // namespace switchyard::bench
