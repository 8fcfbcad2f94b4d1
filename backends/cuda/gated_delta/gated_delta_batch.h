// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA of steps with one row per sequence, whose output the next projection gets as it reads it: for ranges.
#pragma once

#include "gated_delta.cuh"

namespace gpu {

swy_status supports_delta_batch(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error);
double delta_batch_cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket);
// d.few gets the output or, with d.squares, d.heads and d.squares as of record_delta_raw; d.y nothing.
swy_status record_delta_batch(const Recording& r, const Delta& d);

}  // namespace gpu
