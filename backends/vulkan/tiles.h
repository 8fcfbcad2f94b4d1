// SPDX-License-Identifier: Apache-2.0
// Tiles of products for prompts: what their launchers share.
//
//   *.tiles         fp32, any device
//   *.cooperative   fp16 factors with a power of two per row, fp32 sums, by matrix instructions (matrices.h)
#pragma once

#include "projection.h"

namespace gpu {

// Rows of activations in the form of the tile shaders.
struct Staged {
  Span rows;                   // [rows, width] fp16, or fp32
  Span scales;                 // fp32 [rows]: factors of the results (fp16)
  uint32_t scales_before = 0;  // bytes from the first scale to the first row
};

// Room for staged rows in a workspace.
Staged take_staged(Arena& arena, uint64_t rows, uint64_t width, bool half);
// Converts `x` into them, with the norm of `p` if it has one. `tiles`: of a sorted mixture, which has the number of
// rows; or no span.
swy_status record_staging(const Recording& r, const Projection& p, Span tiles, const Staged& to, uint32_t rows,
                          bool half);
// Records a projection by tiles; `staged` may be p.x itself in fp32.
swy_status record_projection_tiles(const Recording& r, const Projection& p, const Staged& staged, uint32_t rows,
                                   bool half);

// Rows of a tile for so many rows and tiles of columns, with matrix instructions: tall tiles, unless there are then too
// few for the device.
uint32_t tile_rows(const swy_device& device, uint32_t rows, uint32_t columns);

// Whether tiles can read these weights. Those of matrix instructions read 32 elements with one scale, the others 8.
swy_status tiles_usable(const swy_op& op, Matrices m, bool half, swy_error* error);

}  // namespace gpu
