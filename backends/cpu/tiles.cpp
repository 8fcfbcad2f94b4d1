// SPDX-License-Identifier: Apache-2.0
#include "tiles.h"

#include <immintrin.h>

#include <initializer_list>

#include "multiply.h"

namespace cpu {
namespace {

// The palette's layout (Intel SDM, LDTILECFG).
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

}  // namespace

uint64_t tile_scratch_bytes() { return kTileScratch; }

// Tiles 0 to 3 hold sums, 4 and 5 activations, 6 and 7 weights.
void tiles_begin(uint32_t depth_bytes) {
  TileConfig c;
  for (int t : {0, 1, 2, 3}) c.rows[t] = kTileRows, c.row_bytes[t] = 64;
  for (int t : {4, 5}) c.rows[t] = kTileRows, c.row_bytes[t] = static_cast<uint16_t>(depth_bytes);
  for (int t : {6, 7}) c.rows[t] = static_cast<uint8_t>(depth_bytes / 4), c.row_bytes[t] = 64;
  __asm__ volatile("" : : "r"(&c) : "memory");  // GCC 12 declares 8 of the 64 bytes that the next line reads
  _tile_loadconfig(&c);
}
void tiles_end() { _tile_release(); }

}  // namespace cpu
