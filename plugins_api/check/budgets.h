// SPDX-License-Identifier: Apache-2.0
// How far a kernel's result may be from the oracle's: one table for every backend.
#pragma once

#include "switchyard/ops.h"

namespace switchyard::check {

// Relative errors of rows: of the worst row, and the mean over all. With d = got - wanted over a row of n elements, its
// error is the larger of |d| / |wanted| (Euclidean) and max |d_i| / (8 rms(wanted)): one wrong element counts as much
// as 64 of them in a row of any width, so that it cannot hide in a wide one. Rows of fewer than 64 values count
// together, as many as make up so many: a few values may all be small by chance.
struct Budget {
  double worst = 0, mean = 0;
};

// `activations`: the type to which the kernel says that its products round activations. `output`: the dtype of the
// stored result. States have the budget of the operation's outputs in fp32.
Budget budget(swy_op_id op, swy_dtype encoding, swy_dtype activations, swy_dtype output);

}  // namespace switchyard::check
