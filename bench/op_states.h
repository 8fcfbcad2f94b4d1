// SPDX-License-Identifier: Apache-2.0
// The states of operations whose results are compared.
#pragma once

#include <map>
#include <vector>

#include "core/plan/plan.h"
#include "core/plugin/buffer.h"

namespace switchyard::bench {

// States of one device, by their index in the graph, shared by the operations that name them. Each slot and page begins
// with random numbers that bf16 holds, the same on every device.
class OpStates {
 public:
  // The whole state; made by the first call. Errors: those of the device.
  Result<swy_binding> get(const PlanDevice& device, const Graph& graph, const GraphOp& op, uint32_t index,
                          const swy_bucket& bucket);
  // All of a state that `get` made, in canonical form: its slots, or its pages.
  Result<std::vector<float>> canonical(const PlanDevice& device, const Graph& graph, uint32_t state,
                                       const swy_bucket& bucket) const;

 private:
  struct State {
    DeviceBuffer buffer;
    uint64_t unit_bytes = 0;
  };
  std::map<uint32_t, State> states_;
};

// The bytes that hold these numbers in elements of a type, and the other way round. Integers are numbers, too.
std::vector<std::byte> bytes_of(const std::vector<float>& numbers, swy_dtype dtype);
std::vector<float> numbers_of(const std::vector<std::byte>& bytes, swy_dtype dtype);

}  // namespace switchyard::bench
