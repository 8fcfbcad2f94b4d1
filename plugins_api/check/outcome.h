// SPDX-License-Identifier: Apache-2.0
// The results of an operation, from a device or as expected.
#pragma once

#include "plugins_api/check/case.h"

namespace switchyard::check {

// One output of one step, [rows, width].
struct Matrix {
  uint64_t rows = 0, width = 0;
  swy_dtype dtype = SWY_F32;
  std::vector<double> values;  // fp32 and bf16
  std::vector<int32_t> ints;   // SWY_I32
  // The same bits? For values that a device gave.
  bool same_row(uint64_t row, const Matrix& other, uint64_t other_row) const;
};

struct Outcome {
  std::vector<std::vector<Matrix>> outputs;  // [step][output]
  std::vector<std::vector<double>> states;   // [state], as State::content
  std::vector<int32_t> tokens;
  // Each state before the first step, as a device holds it: it may keep less than fp32. Empty: exactly the content.
  struct Held {
    std::vector<double> content;
    uint64_t unit_bytes = 0;  // of a slot or page
  };
  std::vector<Held> before;
};

// Matrices of the right shapes with zeros, and the case's own states and tokens: for the naive implementations.
Outcome blank_outcome(const Case& c);

}  // namespace switchyard::check
