// SPDX-License-Identifier: Apache-2.0
// Two projections and their sum: of rows of an embedding, and of other rows, each by a norm of its own. So a
// multi-token prediction layer begins.
#pragma once

#include "host/kernels.h"

namespace gpu {

// Its operations, in this order; the projections may change places.
struct TwoOps {
  const swy_op &embedding, &norm_of_embedding, &norm_of_rows, &first, &second;
};

// Up to four rows, by the copy engine.
swy_status supports_two(const swy_device& device, const TwoOps& ops, swy_error* error);
double two_cost(const swy_device& device, const TwoOps& ops);

struct TwoInputs {
  Weight table;
  const float* rows;            // [rows, width]
  Weight norms[2], weights[2];  // of the embedding, and of the rows
  float eps[2], bias[2];        // of the norms
  float* y;                     // [rows, rows of a weight]
};
// `r`: of one of the projections.
swy_status record_two(const Recording& r, const TwoInputs& in);

}  // namespace gpu
