// SPDX-License-Identifier: Apache-2.0
// Rows of activations in the forms that products of one mode need, and products of such rows with panels of weights.
#pragma once

#include "kernels.h"

namespace cpu {

// In steps of at most this many rows every member converts all rows itself, which saves a barrier.
inline constexpr uint32_t kPrivateRows = 4;
// The pointers to m rows of `stride` floats.
template <class T, uint32_t kMost>
struct RowPointers {
  T* at[kMost];
  RowPointers(T* first, uint64_t stride, uint32_t m) {
    for (uint32_t r = 0; r < m; ++r) at[r] = first + r * stride;
  }
};

// Rows of activations that stay in a core's cache while all its weights pass by.
inline constexpr uint32_t kRowChunk = 512;
static_assert(kRowChunk % kTileGroup == 0);

// 8-bit rows with each size of block and with wide_block(); bf16 rows that keep 16 bits of mantissa.
inline constexpr uint32_t kWideForm = std::bit_width(kMostBlock / kLeastBlock), kPlainForm = kWideForm + 1,
                          kRowForms = kPlainForm + 1;

// The form of rows that a product reads: an index below kRowForms; kRowForms means the fp32 rows themselves.
constexpr uint32_t row_form(Mode mode, const PanelShape& shape) {
  if (mode == Mode::exact || shape.dtype == SWY_F32) return kRowForms;
  const bool other = mode == Mode::tiles_wide || mode == Mode::tiles_bf16;
  if (!shape.quantized()) return other ? kPlainForm : kRowForms;
  if (other) return kWideForm;
  return static_cast<uint32_t>(std::countr_zero(shape.block / kLeastBlock));
}

// The form in memory.
inline RowFormat row_format(uint32_t form, uint64_t width) {
  return form == kPlainForm ? RowFormat::bf16(width)
                            : RowFormat(width, form == kWideForm ? wide_block(width) : kLeastBlock << form);
}

// Bit mask of the forms that weights [first, last) of an operation read.
inline uint32_t forms_of(Mode mode, const swy_op& op, uint32_t first, uint32_t last) {
  uint32_t mask = 0;
  for (uint32_t i = first; i < last; ++i) {
    PanelShape s;
    if (panel_shape(*op.weights[i], kPanels, &s, nullptr) == SWY_OK) mask |= 1u << row_form(mode, s);
  }
  return mask;
}
inline bool has_quantized(const swy_op& op) {
  for (uint32_t i = 0; i < op.weight_count; ++i) {
    if (op.weights[i]->dtype != SWY_BF16 && op.weights[i]->dtype != SWY_F32) return true;
  }
  return false;
}

// Rows [rows, width] of one step in all forms that are needed.
class RowForms {
 public:
  RowForms(Arena& arena, uint32_t forms, uint64_t rows, uint64_t width) {
    const uint64_t capacity = std::max<uint64_t>(rows, uint64_t{swy::team_width} * kPrivateRows) + kTileGroup;
    for (uint32_t i = 0; i < kRowForms; ++i) {
      if ((forms >> i & 1u) == 0) continue;
      formats_[i] = row_format(i, width);
      data_[i] = arena.take<uint8_t>(capacity * formats_[i].bytes);
    }
  }

  // Converts x [rows, width]. Collective: afterwards every member may read all rows.
  void fill(const swy::Call& call, const float* x, uint32_t rows) {
    private_ = rows <= kPrivateRows;
    rank_ = call.rank();
    bool any = false;
    const auto [first, last] = private_ ? std::pair<uint64_t, uint64_t>{0, rows} : call.split(rows);
    for (uint32_t i = 0; i < kRowForms; ++i) {
      if (data_[i] == nullptr) continue;
      any = true;
      for (uint64_t r = first; r < last; ++r) encode_row(x + r * formats_[i].width, formats_[i], at(i, r));
    }
    if (any && !private_) call.barrier();
  }

  const RowFormat& format(uint32_t form) const { return formats_[form % kRowForms]; }
  const uint8_t* row(uint32_t form, uint64_t r) const { return form == kRowForms ? nullptr : at(form, r); }

 private:
  uint8_t* at(uint32_t form, uint64_t r) const {
    const uint64_t base = private_ ? uint64_t{rank_} * kPrivateRows : 0;
    return data_[form] + (base + r) * formats_[form].bytes;
  }

  RowFormat formats_[kRowForms];
  uint8_t* data_[kRowForms] = {};
  uint32_t rank_ = 0;
  bool private_ = false;
};

// This thread's tile registers, configured for the products of one form, and the pair whose first block is in the
// scratch; empty in the other modes.
class TileScope {
 public:
  TileScope() = default;
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
  ~TileScope() {
    if (depth_ != 0) tiles_end();
  }
  void use(uint32_t form) {
    const uint32_t depth = form < kWideForm ? std::min(kLeastBlock << form, 64u) : 64;
    if (depth == depth_) return;
    tiles_begin(depth);
    depth_ = depth;
  }
  TilePipeline pipeline;

 private:
  uint32_t depth_ = 0;
};

// What becomes of gate and up: swy_activation with its numbers, after biases.
struct Activation {
  swy_activation kind;
  float alpha, limit;
  const float *gate_bias = nullptr, *up_bias = nullptr;  // of these columns; NULL: none
  template <class Attrs>
  explicit Activation(const Attrs& a) : kind(a.activation), alpha(a.act_alpha), limit(a.act_limit) {}
};

// act(gate [m, 16], up [m, 16]), written to rows of `stride`, `columns` wide.
void activate_columns(const Activation& act, const float* gate, const float* up, uint32_t m, uint32_t columns,
                      uint64_t stride, float* to);
// Products [m, 16] to `columns` of a target, from column `at` on.
void put_columns(const float* products, uint32_t m, uint32_t columns, uint64_t at, const RowTarget& target);
// sum [16] = the sum over n of factors[n] * products [n, 16], in the order and with the rounding of put_columns.
void sum_columns(const float* products, const float* factors, uint32_t n, float* sum);

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

// m rows for panel_pair: fp32 [m, width], and in the form that the mode and the weights need.
struct PairRows {
  const float* exact;
  const RowFormat& format;
  const uint8_t* rows;
};

// Products in scratch.first and .second to their target, if there is one.
inline void put(const PairScratch& scratch, PanelPair pair, uint32_t m, const TargetColumns& to) {
  if (to.target == nullptr) return;
  put_columns(scratch.first, m, std::min(to.count, kPanelRows), to.at, *to.target);
  if (pair.second == pair.first) return;
  put_columns(scratch.second, m, to.count - kPanelRows, to.at + kPanelRows, *to.target);
}

// Two panels of one shape times m rows into `to`, or otherwise into scratch.first and .second; `second` may be `first`,
// and then there is only one. `next` is the pair that follows with the same scratch, or empty.
template <Mode kMode>
void panel_pair(const PanelShape& shape, PanelPair pair, PanelPair next, const PairRows& x, uint32_t m,
                TileScope& tiles, const PairScratch& scratch, const TargetColumns& to = {}) {
  const uint32_t form = row_form(kMode, shape);
  const auto [first, second] = pair;
  if (on_tiles(kMode) && form != kRowForms) {
    tiles.use(form);
    if (form == kPlainForm) {
      multiply_tiles_bf16(shape, first, second, x.format, x.rows, m, scratch.first, scratch.second);
    } else if (form == kWideForm) {
      multiply_tiles_wide(shape, pair, next, tiles.pipeline, x.format, x.rows, m, scratch.tiles, scratch.first,
                          scratch.second, to);
      return;
    } else {
      multiply_tiles_int8(shape, first, second, x.format, x.rows, m, scratch.tiles, scratch.first, scratch.second);
    }
    put(scratch, pair, m, to);
    return;
  }
  const auto one = [&](const uint8_t* panel, float* out) {
    if (form == kRowForms) {
      multiply_exact(shape, panel, x.exact, shape.width, m, out);
    } else {
      multiply(shape, panel, x.format, x.rows, m, out);
    }
  };
  one(first, scratch.first);
  if (second != first) one(second, scratch.second);
  put(scratch, pair, m, to);
}

// Panels [begin, end) of one matrix times m rows into the target, panel `begin` first. `after` is the panel that
// follows.
template <Mode kMode>
void panel_range(const Panels& w, uint64_t matrix, uint64_t begin, uint64_t end, const PairRows& x, uint32_t m,
                 TileScope& tiles, const PairScratch& scratch, const RowTarget& target, PanelPair after = {}) {
  const auto pair_at = [&](uint64_t p) {
    return p < end ? PanelPair{w.panel(matrix, p), w.panel(matrix, std::min(p + 1, end - 1))} : after;
  };
  for (uint64_t p = begin; p < end; p += 2) {
    const uint32_t columns = w.rows_in(p) + (p + 1 < end ? w.rows_in(p + 1) : 0);
    panel_pair<kMode>(w.shape, pair_at(p), pair_at(p + 2), x, m, tiles, scratch,
                      {&target, (p - begin) * kPanelRows, columns});
  }
}

}  // namespace cpu
