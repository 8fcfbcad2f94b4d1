// SPDX-License-Identifier: Apache-2.0
// The packed layout of weights, one per encoding, for every instruction set.
//
// A matrix [rows, width] is divided into panels of 16 rows. Along the width a panel is divided into blocks, and inside
// a block the elements have the order of VNNI and AMX: line j of 64 bytes holds, for each of the 16 rows, the 4
// elements 4j .. 4j+3 (i8), or 2 (bf16), or 1 (f32). Quantized weights:
//   - i8 is stored as unsigned bytes, w = (u - 128) * s;
//   - of two 4-bit lines, the first is in the low nibbles and the second in the high ones;
//   - a block is as wide as the weight's group (128 for one group per row), and short blocks are padded with zeros;
//   - after the panel's quants come its scales [groups, 16], then its offsets (i4a), then padding to 64 bytes. They are
//     fp16; those of mxfp4 are the bytes of E8M0.
// The nibbles of mxfp4 stay as they are. A kernel takes twice their values, which are whole numbers (kTwiceE2m1), and
// half the scale, so that these weights multiply as i4 does.
//
// A vector kernel multiplies a line with 4 broadcast activations; a tile kernel takes 16 lines as one B tile.
#pragma once

#include <bit>
#include <cstdint>

#include "switchyard/ops.h"
#include "switchyard/plugin.h"

namespace cpu {

inline constexpr uint32_t kPanelRows = 16;
// Blocks of quantized weights have 16, 32, 64 or 128 elements.
inline constexpr uint32_t kLeastBlock = 16, kMostBlock = 128;
constexpr bool is_block(uint32_t n) { return std::has_single_bit(n) && n >= kLeastBlock && n <= kMostBlock; }

enum Layout : uint32_t {
  kCanonical = 0,
  kPanels = 1,
  kHalvedPanels = 2,  // each matrix's first and second half of rows cut apart: an expert's gate and up
};

// Offsets in a packed tensor.
struct PanelShape {
  swy_dtype dtype = 0;
  uint64_t matrices = 0;  // experts, times two if halved
  uint64_t rows = 0;      // of one matrix
  uint64_t width = 0;
  uint64_t panels = 0;       // per matrix
  uint32_t block = 0;        // elements along the width
  uint64_t blocks = 0;       // per row
  uint64_t block_bytes = 0;  // of quants, 16 rows
  uint64_t groups = 0;       // of scales per row: `blocks`, or 1
  uint64_t group_bytes = 0;  // of 16 rows' scales
  uint64_t scales_at = 0;    // from the panel's begin
  uint64_t offsets_at = 0;
  uint64_t panel_bytes = 0;
  uint64_t bytes = 0;  // of the tensor

  bool quantized() const { return groups != 0; }
};

// Of each nibble of mxfp4, twice its value.
inline constexpr int8_t kTwiceE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
// What is added where a kernel needs weights without signs.
inline constexpr int kZeroE2m1 = 12;
// The bits of the fp32 number 2^-127. A scale's bits are its byte shifted to the exponent, and at least these: for the
// byte 0. The byte 255 gives infinity.
inline constexpr uint32_t kLeastE8m0 = 0x00400000;

// Errors: SWY_UNSUPPORTED for a tensor that this layout cannot hold.
swy_status panel_shape(const swy_tensor& tensor, uint32_t layout, PanelShape* out, swy_error* error);

swy_status packed_bytes(const swy_tensor* tensor, uint32_t layout, uint64_t* bytes, swy_error* error);
swy_status pack(const swy_tensor* tensor, uint32_t layout, const void* canonical, void* packed, swy_error* error);
const char* layout_name(uint32_t layout);

// A packed tensor in memory.
struct Panels {
  PanelShape shape;
  const uint8_t* data = nullptr;

  const uint8_t* panel(uint64_t matrix, uint64_t index) const {
    return data + (matrix * shape.panels + index) * shape.panel_bytes;
  }
  // Rows of the matrix in this panel.
  uint32_t rows_in(uint64_t index) const {
    const uint64_t left = shape.rows - index * kPanelRows;
    return left < kPanelRows ? static_cast<uint32_t>(left) : kPanelRows;
  }
};

// `tensor` is one that panel_shape has accepted.
Panels panels_of(const swy_tensor& tensor, const void* packed);

}  // namespace cpu
