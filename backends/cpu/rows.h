// Activations as the matrix products take them: 8-bit rows with one scale per block, or bf16 rows.
#pragma once

#include <cstdint>
#include <cstring>

namespace cpu {

enum class RowKind {
  int8,        // quants, zero beyond the width; then per block an fp32 scale; then per block the sum of its quants, i32
  bf16,        // rounded, zero beyond the width
  split_bf16,  // that, then at `rest_at` the rounded difference to x: together 16 bits of mantissa
};

// How one row of activations lies in memory. Rows follow each other at `bytes`.
struct RowFormat {
  RowKind kind = RowKind::int8;
  uint64_t width = 0;
  uint32_t block = 0;  // int8: elements per scale, that of the weights they meet
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
  // bf16 rows, up to a multiple of the widest block of weights. The odd line keeps rows out of each other's cache sets.
  RowFormat(uint64_t width_, RowKind kind_) : kind(kind_), width(width_) {
    const uint64_t plane = (width_ + 127) / 128 * 256;
    rest_at = plane;
    bytes = (kind_ == RowKind::split_bf16 ? 2 * plane : plane) + 64;
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
