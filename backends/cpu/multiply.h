// SPDX-License-Identifier: Apache-2.0
// Products of one panel of weights (panels.h) with rows of activations: out [m, 16] = x [m, width] * panel^T.
//
// The 8-bit products give the same bits on every instruction set: integer sums per block, then for each block in order
// out += (sum * activation scale) * weight scale in fp32. So a row's result depends neither on the other rows nor on
// whether vectors or tiles computed it.
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

// On tiles, two panels of one shape at a time; `second` may be `first`, and then has no output. Rows are read and
// outputs written in groups of kTileGroup: both have room up to the next multiple of it. `scratch`:
// tile_scratch_bytes(), aligned to 64. Between tiles_begin, with the depth of the products, and tiles_end of the
// calling thread.
inline constexpr uint32_t kTileGroup = 32;
uint64_t tile_scratch_bytes();
void tiles_begin(uint32_t depth_bytes);  // of a row of a tile of activations, at most 64
void tiles_end();

// 8-bit rows; quantized weights.
void multiply_tiles_int8(const PanelShape& shape, const uint8_t* first, const uint8_t* second, const RowFormat& format,
                         const uint8_t* rows, uint32_t m, void* scratch, float* first_out, float* second_out);
// bf16 rows, in both parts, and weights.
void multiply_tiles_bf16(const PanelShape& shape, const uint8_t* first, const uint8_t* second, const RowFormat& format,
                         const uint8_t* rows, uint32_t m, float* first_out, float* second_out);

// Where rows of products go: rows[r][n] = add[r][n] + factors[r] * (product[r][n] + bias[n]).
struct RowTarget {
  float* const* rows = nullptr;
  const float* const* add = nullptr;  // NULL: nothing
  const float* factors = nullptr;     // NULL: 1
  const float* bias = nullptr;        // NULL: nothing
  bool stream = false;                // too large for a cache: written past it, where that is possible
};

// 8-bit rows in blocks of wide_block(); quantized weights, rounded to 8 bits with one scale per such block. While a
// pair of panels is multiplied, the first block of `next` is converted; both members of `next` are NULL if no pair
// follows. The products go to the `columns` of the target, the second panel's after the first's 16; without a target to
// first_out and second_out.
struct PanelPair {
  const uint8_t *first = nullptr, *second = nullptr;
};
struct TargetColumns {
  const RowTarget* target = nullptr;
  uint64_t at = 0;     // of the first panel
  uint32_t count = 0;  // of both
};
struct TilePipeline {
  const uint8_t* ready = nullptr;  // the first panel of the pair whose first block is converted in the scratch
  uint32_t turn = 0;
};
void multiply_tiles_wide(const PanelShape& shape, PanelPair pair, PanelPair next, TilePipeline& pipeline,
                         const RowFormat& format, const uint8_t* rows, uint32_t m, void* scratch, float* first_out,
                         float* second_out, const TargetColumns& to);

namespace detail {
void multiply_avx512(const PanelShape& shape, const uint8_t* panel, const RowFormat& format, const uint8_t* rows,
                     uint32_t m, float* out);
void multiply_avx2(const PanelShape& shape, const uint8_t* panel, const RowFormat& format, const uint8_t* rows,
                   uint32_t m, float* out);
void multiply_baseline(const PanelShape& shape, const uint8_t* panel, const RowFormat& format, const uint8_t* rows,
                       uint32_t m, float* out);
}  // namespace detail

}  // namespace cpu
