// SPDX-License-Identifier: Apache-2.0
// Activations in the forms of the matrix products: 8-bit rows with one scale per block, or bf16 rows.
#pragma once

#include <cstdint>
#include <cstring>

namespace cpu {

// Elements per scale of rows and weights that are multiplied in wide blocks. Fewer scales mean less work beside the
// products; but a row has at least two blocks, so that the second's weights can be loaded during the first.
inline constexpr uint32_t kWideBlock = 512;
constexpr uint32_t wide_block(uint64_t width) { return width > kWideBlock ? kWideBlock : kWideBlock / 2; }

enum class RowKind {
  int8,  // quants, zero beyond the width; then per block an fp32 scale; then per block the sum of its quants, i32
  bf16,  // rounded, zero beyond the width; then at `rest_at` the rounded difference to x: together 16 bits of mantissa
};

// Layout of one row of activations. Rows follow each other at `bytes`.
struct RowFormat {
  RowKind kind = RowKind::int8;
  uint64_t width = 0;
  uint32_t block = 0;  // int8: elements per scale, equal to that of the weights
  uint64_t blocks = 0;
  uint64_t scales_at = 0;
  uint64_t sums_at = 0;
  uint64_t rest_at = 0;
  uint64_t bytes = 0;

  RowFormat() = default;
  // 8-bit rows.
  RowFormat(uint64_t width_, uint32_t block_) : width(width_), block(block_), blocks((width_ + block_ - 1) / block_) {
    scales_at = (blocks * block + 63) / 64 * 64;
    sums_at = scales_at + blocks * 4;
    bytes = (sums_at + blocks * 4 + 63) / 64 * 64;
  }
  // bf16 rows. The odd line keeps rows in different cache sets.
  static RowFormat bf16(uint64_t width) {
    RowFormat f;
    f.kind = RowKind::bf16;
    f.width = width;
    f.rest_at = (width + 31) / 32 * 64;
    f.bytes = 2 * f.rest_at + 64;
    return f;
  }
};

// Four quants as one word, to be broadcast.
inline int32_t word_at(const uint8_t* p) {
  int32_t w;
  std::memcpy(&w, p, 4);
  return w;
}
// The scale and the sum of a row's block.
inline float scale_at(const uint8_t* row, const RowFormat& format, uint64_t block) {
  float s;
  std::memcpy(&s, row + format.scales_at + 4 * block, 4);
  return s;
}
inline int32_t sum_at(const uint8_t* row, const RowFormat& format, uint64_t block) {
  return word_at(row + format.sums_at + 4 * block);
}

// x [width] in the format. int8: to[i] = round(x[i] / scale), with scale = max |x| / 127 of the block.
void encode_row(const float* x, const RowFormat& format, uint8_t* to);

}  // namespace cpu
