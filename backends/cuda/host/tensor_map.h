// SPDX-License-Identifier: Apache-2.0
// Tensor maps: how the copy engine of Hopper finds boxes of a matrix.
#pragma once

#include <cuda.h>

#include "device.h"
#include "operands.h"

namespace gpu {

// A matrix [rows, columns] in device memory, and the size of the boxes that are copied at once.
struct BoxedMatrix {
  const void* data;
  CUtensorMapDataType type;
  uint64_t columns, rows, row_bytes;
  uint32_t box_columns, box_rows;
  CUtensorMapSwizzle swizzle;
};

// SWY_UNSUPPORTED if the driver has no tensor maps.
swy_status map_matrix(const BoxedMatrix& matrix, CUtensorMap* out, swy_error* error);

constexpr uint32_t kBoxBytes = 128;  // of a row

// Boxes of `rows` rows and 128 bytes of a weight's data. In shared memory, from an address that is a multiple of 1024,
// piece p (16 bytes) of row r lies at r * 128 + (p ^ r % 8) * 16.
swy_status map_boxes(const Weight& weight, uint32_t rows, CUtensorMap* out, swy_error* error);

// Boxes of `box_rows` rows and `box_columns` columns of a matrix [rows, row_bytes / 128] of columns of 128 bytes, by
// the coordinates (0, row, column). In shared memory: one column after the other, each as above.
swy_status map_columns(const void* data, uint64_t rows, uint64_t row_bytes, uint32_t box_rows, uint32_t box_columns,
                       CUtensorMap* out, swy_error* error);

}  // namespace gpu
