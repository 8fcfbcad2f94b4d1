// SPDX-License-Identifier: Apache-2.0
// multiply_tiles_bf16: AMX bf16 tiles, two tiles of rows by two panels.
//
// bf16 panels are tiles already and are read in place. They are processed in stretches that fit the first-level cache,
// each for all rows; between stretches the sums are in the outputs.
#include <immintrin.h>

#include <algorithm>

#include "multiply.h"
#include "tiles.h"

namespace cpu {
namespace {

constexpr uint32_t kDepth = 32;  // elements along the width of one tile
constexpr uint64_t kTileBytes = 1024;

// out [32, 16] of two panels += rows x tiles over `steps` products. With `fresh` the outputs begin at zero.
void products(const uint8_t* rows, long row_bytes, const uint8_t* first, const uint8_t* second, uint64_t steps,
              bool fresh, float* first_out, float* second_out) {
  constexpr long kOut = kPanelRows * sizeof(float);
  constexpr uint64_t kHalf = kTileRows * kPanelRows;
  if (fresh) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, first_out, kOut);
    _tile_loadd(1, second_out, kOut);
    _tile_loadd(2, first_out + kHalf, kOut);
    _tile_loadd(3, second_out + kHalf, kOut);
  }
  for (uint64_t k = 0; k < steps; ++k) {
    _tile_loadd(4, rows + k * 64, row_bytes);
    _tile_loadd(6, first + k * kTileBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, second + k * kTileBytes, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, rows + k * 64 + kTileRows * static_cast<uint64_t>(row_bytes), row_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, first_out, kOut);
  _tile_stored(1, second_out, kOut);
  _tile_stored(2, first_out + kHalf, kOut);
  _tile_stored(3, second_out + kHalf, kOut);
}

}  // namespace

void multiply_tiles_bf16(const PanelShape& s, const uint8_t* first, const uint8_t* second, const RowFormat& format,
                         const uint8_t* rows, uint32_t m, float* first_out, float* second_out) {
  constexpr uint64_t kStretch = 16;  // blocks of both panels that stay in the first-level cache, 32 KiB
  const auto row_bytes = static_cast<long>(format.bytes);
  alignas(64) float unused[kTileGroup * kPanelRows];
  for (uint64_t b = 0; b < s.blocks; b += kStretch) {
    const uint64_t tiles = std::min(kStretch, s.blocks - b);
    const uint8_t *w0 = first + b * kTileBytes, *w1 = second + b * kTileBytes;
    for (uint32_t r = 0; r < m; r += kTileGroup) {
      const uint8_t* x = rows + r * format.bytes + b * kDepth * 2;
      float* out0 = first_out + r * kPanelRows;
      float* out1 = second != first ? second_out + r * kPanelRows : unused;
      products(x, row_bytes, w0, w1, tiles, b == 0, out0, out1);
      products(x + format.rest_at, row_bytes, w0, w1, tiles, false, out0, out1);
    }
  }
}

}  // namespace cpu
