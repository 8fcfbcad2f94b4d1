// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA of steps with one row per sequence, or of few rows, up to its norm and gate: for ranges.
#pragma once

#include "gated_delta.cuh"

namespace gpu {

swy_status supports_delta_step(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error);
// A head's squares are summed in parts of 32 columns. Further parts, up to a multiple of four, are 0.
constexpr uint32_t kHeadPart = 32;
__host__ __device__ constexpr uint32_t head_parts(uint32_t dim) { return dim <= 4 * kHeadPart ? 4 : dim / kHeadPart; }
// d.heads [rows, values] gets the delta rule's output times the norm's weights and the gate silu(z); d.squares that
// output's squares. The reader applies the norm's factor to each head.
swy_status record_delta_raw(const Recording& r, const Delta& d);

}  // namespace gpu
