// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA of steps with one row per sequence, up to its norm and gate: for ranges.
#pragma once

#include "gated_delta.cuh"

namespace gpu {

swy_status supports_delta_step(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error);
// d.y [rows, values] gets the delta rule's output; the reader applies the norm and the gate z.
swy_status record_delta_raw(const Recording& r, const Delta& d);

}  // namespace gpu
