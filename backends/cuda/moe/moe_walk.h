// SPDX-License-Identifier: Apache-2.0
// MOE of three or four rows by boxes of its weights (moe_walk.cu).
#pragma once

#include "moe_boxes.cuh"

namespace gpu {

// Whether these kernels take such weights, and a block's memory is enough.
bool fits_walk(const swy_device& device, const MixtureBoxes& b);
// Whether the router's kernel is one of these.
bool routes_by_terms(const Mixture& m);
swy_status record_walk_route(const Recording& r, const MixtureBoxes& b);
// The other two.
swy_status record_walk(const Recording& r, const MixtureBoxes& b, uint32_t rows);

}  // namespace gpu
