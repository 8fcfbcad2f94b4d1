// SPDX-License-Identifier: Apache-2.0
// MOE of three or four rows by boxes of its weights (moe_walk.cu).
#pragma once

#include "moe_boxes.cuh"

namespace gpu {

// Whether a block's memory is enough for these kernels.
bool fits_walk(const swy_device& device, const MixtureBoxes& b);
// The router's kernel, of weights in bf16.
swy_status record_route_walk(const Recording& r, const MixtureBoxes& b);
// gate_up and down.
swy_status record_walk(const Recording& r, const MixtureBoxes& b, uint32_t rows);

}  // namespace gpu
