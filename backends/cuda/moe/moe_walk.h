// SPDX-License-Identifier: Apache-2.0
// MOE of three or four rows by boxes of its weights (moe_walk.cu).
#pragma once

#include "moe_boxes.cuh"

namespace gpu {

// Whether these kernels take such weights, and a block's memory is enough.
bool fits_walk(const swy_device& device, const MixtureBoxes& b);
// Whether there is a router's kernel, too.
bool routes_by_terms(const Mixture& m);
// The router's kernel, which also fills b.x; without `route` it does only that.
swy_status record_walk_route(const Recording& r, const MixtureBoxes& b, bool route);
// The other two.
swy_status record_walk(const Recording& r, const MixtureBoxes& b, uint32_t rows);

}  // namespace gpu
