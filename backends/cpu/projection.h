// Projection: rows of activations, in the forms that products of one mode need, and products with whole matrices, split
// over the team.
#pragma once

#include <algorithm>

#include "kernels.h"

namespace cpu {

// Steps of at most this many rows are quantised by every member for itself, which saves a barrier.
inline constexpr uint32_t kPrivateRows = 4;
// Rows of activations that stay in a core's cache while all its weights pass by.
inline constexpr uint32_t kRowChunk = 256;
static_assert(kRowChunk % 16 == 0);

// 8-bit forms of rows [rows, width], one per block size that occurs.
class QuantRows {
 public:
  static constexpr uint32_t kForms = 3;

  // Takes its memory from `arena`. `blocks`: bit mask of block sizes 32, 64, 128.
  QuantRows(Arena& arena, uint32_t blocks, uint64_t rows, uint64_t width) {
    const uint64_t shared = (rows + 15) / 16 * 16;
    const uint64_t capacity = std::max<uint64_t>(shared, uint64_t{swy::team_width} * kPrivateRows);
    for (uint32_t i = 0; i < kForms; ++i) {
      const uint32_t block = 32u << i;
      if ((blocks & block) == 0) continue;
      formats_[i] = RowFormat(width, block);
      data_[i] = arena.take<uint8_t>(capacity * formats_[i].bytes);
    }
  }

  // Quantises x [rows, width]. Collective; afterwards every member may read all rows, at rows_for(block, ...).
  void fill(const swy::Call& call, const float* x, uint32_t rows) {
    private_ = rows <= kPrivateRows;
    rank_ = call.rank();
    for (uint32_t i = 0; i < kForms; ++i) {
      if (data_[i] == nullptr) continue;
      const auto [first, last] = private_ ? std::pair<uint64_t, uint64_t>{0, rows} : call.split(rows);
      for (uint64_t r = first; r < last; ++r) quantize_row(x + r * formats_[i].width, formats_[i], at(i, r));
    }
    if (!private_) call.barrier();
  }

  const RowFormat& format(uint32_t block) const { return formats_[form(block)]; }
  const uint8_t* row(uint32_t block, uint64_t r) const { return at(form(block), r); }

 private:
  static uint32_t form(uint32_t block) { return block == 32 ? 0 : block == 64 ? 1 : 2; }
  uint8_t* at(uint32_t i, uint64_t r) const {
    const uint64_t base = private_ ? uint64_t{rank_} * kPrivateRows : 0;
    return data_[i] + (base + r) * formats_[i].bytes;
  }

  RowFormat formats_[kForms];
  uint8_t* data_[kForms] = {};
  uint32_t rank_ = 0;
  bool private_ = false;
};

// Bit mask of the block sizes of quantized weights [first, last) of an operation.
inline uint32_t blocks_of(const swy_op& op, uint32_t first, uint32_t last) {
  uint32_t mask = 0;
  for (uint32_t i = first; i < last; ++i) {
    PanelShape s;
    if (panel_shape(*op.weights[i], kPanels, &s, nullptr) == SWY_OK && s.quantized()) mask |= s.block;
  }
  return mask;
}
// Scratch of one member for panel_pair: tiles, and the products [rows, 16] of two panels.
struct PairScratch {
  void* tiles;
  float *first, *second;
  PairScratch(Arena& arena, uint32_t rows)
      : tiles(arena.take<char>(tile_scratch_bytes())),
        first(arena.take<float>(uint64_t{rows} * kPanelRows)),
        second(arena.take<float>(uint64_t{rows} * kPanelRows)) {}
  static uint64_t bytes(uint32_t rows) {
    Arena arena(nullptr);
    PairScratch(arena, rows);
    return arena.used();
  }
};

// Two panels of one shape times m rows, by the mode, into scratch.first and .second; `second` may be `first`, and then
// only .first is written. Rows are fp32 [m, width] or 8-bit, whichever the mode and the encoding read.
template <Mode kMode>
void panel_pair(const PanelShape& shape, const uint8_t* first, const uint8_t* second, const float* exact_rows,
                const RowFormat& format, const uint8_t* rows, uint32_t m, const PairScratch& scratch) {
  if (kMode == Mode::tiles && shape.quantized()) {
    multiply_tiles(shape, first, second, format, rows, m, scratch.tiles, scratch.first, scratch.second);
    return;
  }
  const auto one = [&](const uint8_t* panel, float* out) {
    if (kMode == Mode::exact || !shape.quantized()) {
      multiply_exact(shape, panel, exact_rows, shape.width, m, out);
    } else {
      multiply(shape, panel, format, rows, m, out);
    }
  };
  one(first, scratch.first);
  if (second != first) one(second, scratch.second);
}

// Tile registers of this thread for the products of one block size; nothing in the other modes.
template <Mode kMode>
class TileScope {
 public:
  void use(const PanelShape& shape) {
    if (kMode != Mode::tiles || !shape.quantized() || shape.block == block_) return;
    tiles_begin(shape.block);
    block_ = shape.block;
  }
  TileScope() = default;
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
  ~TileScope() {
    if (block_ != 0) tiles_end();
  }

 private:
  uint32_t block_ = 0;
};

}  // namespace cpu
