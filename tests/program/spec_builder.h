// SPDX-License-Identifier: Apache-2.0
// Builds the spec of a program for tests, one operand after another. Each returns its index.
#pragma once

#include <optional>
#include <utility>

#include "core/program/spec.h"

namespace switchyard::testing {

class SpecBuilder {
 public:
  using Indices = std::vector<uint32_t>;
  using Attrs = std::vector<std::byte>;

  ProgramSpec spec;

  uint32_t tensor(const char* name, swy_dtype dtype, uint32_t group, std::vector<uint64_t> dims) {
    spec.tensors.push_back({name, dtype, group, std::move(dims), {}});
    return static_cast<uint32_t>(spec.tensors.size() - 1);
  }
  uint32_t state(const char* name, swy_state_kind kind, swy_dtype dtype, std::vector<uint64_t> dims) {
    spec.states.push_back({name, kind, dtype, std::move(dims)});
    return static_cast<uint32_t>(spec.states.size() - 1);
  }
  void function(const char* name) { spec.functions.push_back({name, {}, {}, {}, {}}); }
  uint32_t value(uint64_t width, swy_dtype dtype = SWY_F32, swy_rows rows = SWY_ROWS_STEP) {
    auto& values = spec.functions.back().values;
    values.push_back({fmt::format("v{}", values.size()), dtype, rows, width});
    return static_cast<uint32_t>(values.size() - 1);
  }
  // From the caller; with `source`, a projection of that value by a weight of its own.
  std::optional<uint32_t> source = {};
  uint32_t input(uint64_t width) {
    const uint32_t v = value(width);
    if (source) {
      const auto w =
          tensor(fmt::format("in{}", v).c_str(), SWY_BF16, 0, {width, spec.functions.back().values[*source].width});
      op(SWY_OP_LINEAR, {}, {*source}, {w}, {}, {v});
    } else {
      spec.functions.back().inputs.push_back(v);
    }
    return v;
  }
  void op(swy_op_id id, Attrs attrs, Indices in, Indices weights, Indices states, Indices out, uint32_t revision = 1) {
    spec.functions.back().ops.push_back(
        {id, revision, std::move(attrs), std::move(in), std::move(weights), std::move(states), std::move(out)});
  }
};

}  // namespace switchyard::testing
