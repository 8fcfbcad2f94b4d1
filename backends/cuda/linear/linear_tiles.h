// SPDX-License-Identifier: Apache-2.0
// Products of many rows in tiles (linear_tiles.cu), for operations that consist of several.
#pragma once

#include "common/projection.cuh"
#include "common/tiles.cuh"

namespace gpu {

// Elements of `rows` rows in permuted form.
inline uint64_t permuted_elements(uint32_t rows, uint32_t width) { return uint64_t{rows} * permuted_width(width); }
// Whether `rows` rows can be multiplied in tiles with weights from this one on.
swy_status tiles_usable(const swy_op& op, uint32_t weight, uint32_t rows, swy_error* error);
// Records a projection of `rows` rows. `permuted` has room for permuted_elements.
swy_status record_projection_tiles(const Recording& r, const Projection& p, uint16_t* permuted, uint32_t rows);
// Microseconds of the product of `rows` rows with one weight.
double tile_product_cost(const swy_device& device, const swy_tensor& weight, uint32_t rows);

}  // namespace gpu
