// SPDX-License-Identifier: Apache-2.0
// Projections of many rows that the kernel in front has made bytes (linear_bytes.cu): for ranges.
#pragma once

#include "grouped/bytes.h"
#include "host/kernels.h"

namespace gpu {

// Rows of a bucket; with fewer, the columns are divided among blocks elsewhere.
constexpr uint32_t kLeastByteRows = 257;

swy_status supports_bytes_ready(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error);
// Memory for the rows, and their place in it. inverse [rows]: for a norm.
struct ReadyBytes {
  ByteRows rows;
  float* inverse;
};
uint64_t bytes_ready_memory(const swy_op& op);
ReadyBytes bytes_ready_in(char* memory, const swy_op& op);
double bytes_ready_cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket);
// y = the product with the only weight, plus `residual`.
swy_status record_bytes_ready(const Recording& r, const ByteRows& ready, const float* residual, float* y);
// The products with all weights; x: what was normed, for those of few rows.
swy_status record_bytes_normed(const Recording& r, const NormedBytes& ready, const float* x);

}  // namespace gpu
