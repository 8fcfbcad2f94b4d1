// Products of one panel of weights (panels.h) with rows of activations: out [m, 16] = x [m, width] * panel^T.
//
// The 8-bit products are the same bits on every instruction set: integer sums per block, then for each block in order
// out += (sum * activation scale) * weight scale in fp32. So a row's result does not depend on the rows beside it, nor
// on whether vectors or tiles computed it.
#pragma once

#include <cstdint>

#include "panels.h"
#include "rows.h"

namespace cpu {

// 8-bit activations: m rows (rows.h) one after the other. `rows.block` is that of the weights.
void multiply(const PanelShape& shape, const uint8_t* panel, const RowFormat& format, const uint8_t* rows, uint32_t m,
              float* out);

// fp32 activations [m, stride]; any encoding.
void multiply_exact(const PanelShape& shape, const uint8_t* panel, const float* rows, uint64_t stride, uint32_t m,
                    float* out);

// On tiles. Rows are read in groups of 16: there are readable bytes up to the next multiple of 16 rows. `strip` is
// scratch of strip_bytes(shape). Between tiles_begin and tiles_end of the calling thread.
uint64_t strip_bytes(const PanelShape& shape);
void multiply_tiles(const PanelShape& shape, const uint8_t* panel, const RowFormat& format, const uint8_t* rows,
                    uint32_t m, int8_t* strip, float* out);
void tiles_begin(uint32_t block);
void tiles_end();

namespace detail {
void multiply_avx512(const PanelShape& shape, const uint8_t* panel, const RowFormat& format, const uint8_t* rows,
                     uint32_t m, float* out);
void multiply_avx2(const PanelShape& shape, const uint8_t* panel, const RowFormat& format, const uint8_t* rows,
                   uint32_t m, float* out);
void multiply_baseline(const PanelShape& shape, const uint8_t* panel, const RowFormat& format, const uint8_t* rows,
                       uint32_t m, float* out);
}  // namespace detail

}  // namespace cpu
