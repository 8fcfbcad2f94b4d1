// SPDX-License-Identifier: Apache-2.0
// multiply_tiles_wide: AMX int8 tiles, two tiles of rows by two panels.
//
// Tiles and vectors work at the same time. Between the products of one block, the sums of the previous unit (two tiles
// of rows by one block) are scaled, and pieces of the next block are requantized. After the last block of a pair of
// panels comes the first block of the next pair, so nothing waits at the start of a pair.
#include "multiply.h"
#include "requantize.h"
#include "switchyard/weights.h"
#include "tiles.h"

namespace cpu {
namespace {

constexpr uint32_t kSumTiles = 4;  // of a unit: two tiles of rows by two panels
constexpr uint64_t kTileBytes = 1024;

struct Scratch {
  WideBlock weights[2][2];  // by turn, by panel
  alignas(64) int32_t sums[kSumTiles][kTileRows][kPanelRows];
};
static_assert(sizeof(Scratch) <= kTileScratch);

// Sums of up to two tiles of rows with both panels that wait to be scaled and added to those of the previous blocks.
struct Sums {
  const int32_t (*sums)[kTileRows][kPanelRows] = nullptr;  // [tile of rows * 2 + panel]
  __m512 weights[2];                                       // scales, by panel
  const uint8_t* scales = nullptr;                         // of the first row, for the block
  uint64_t row_bytes = 0;
  uint32_t rows = 0;                  // 0: nothing waits
  bool fresh = false;                 // this is the first block
  float* total[2] = {};               // [rows, 16], of the blocks before and with these; NULL: not wanted
  const TargetColumns* to = nullptr;  // after the last block: the sums go there instead
  uint32_t first_row = 0;             // in the target

  // One tile.
  __attribute__((always_inline)) void scale(uint32_t tile) const {
    const uint32_t panel = tile % 2, first = tile / 2 * kTileRows;
    if (rows <= first || total[panel] == nullptr) return;
    const Part part{sums[tile], scales + first * row_bytes, row_bytes, total[panel] + first * kPanelRows,
                    weights[panel]};
    const uint32_t n = std::min(rows - first, kTileRows);
    if (to != nullptr) {
      fresh ? put<true>(part, panel, first_row + first, n) : put<false>(part, panel, first_row + first, n);
    } else if (n == kTileRows) {
      fresh ? accumulate<true>(part, kTileRows) : accumulate<false>(part, kTileRows);
    } else {
      fresh ? few<true>(part, n) : few<false>(part, n);
    }
  }
  void finish(uint32_t from = 0) const {
    for (uint32_t tile = from; tile < kSumTiles; ++tile) scale(tile);
  }

 private:
  struct Part {
    const int32_t (*sums)[kPanelRows];
    const uint8_t* scale;
    uint64_t row_bytes;
    float* total;
    __m512 weights;

    template <bool kFresh>
    __m512 row(uint32_t r) const {
      float x;
      std::memcpy(&x, scale + r * row_bytes, 4);
      const __m512 dots = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums[r])), _mm512_set1_ps(x));
      if constexpr (kFresh) return _mm512_mul_ps(dots, weights);
      return _mm512_fmadd_ps(dots, weights, _mm512_load_ps(total + r * kPanelRows));
    }
  };
  template <bool kFresh>
  __attribute__((always_inline)) static void accumulate(const Part part, uint32_t n) {
#pragma GCC unroll 16
    for (uint32_t r = 0; r < n; ++r) _mm512_store_ps(part.total + r * kPanelRows, part.row<kFresh>(r));
  }
  template <bool kFresh>
  __attribute__((noinline)) static void few(const Part& part, uint32_t n) {
    for (uint32_t r = 0; r < n; ++r) _mm512_store_ps(part.total + r * kPanelRows, part.row<kFresh>(r));
  }
  template <bool kFresh>
  __attribute__((noinline)) void put(const Part& part, uint32_t panel, uint32_t first, uint32_t n) const {
    const RowTarget& t = *to->target;
    const auto mask = static_cast<__mmask16>((1u << std::min(to->count - panel * kPanelRows, kPanelRows)) - 1);
    const uint64_t column = to->at + panel * kPanelRows;
    const __m512 bias = t.bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, t.bias + column);
    for (uint32_t r = 0; r < n; ++r) {
      const __m512 factor = _mm512_set1_ps(t.factors == nullptr ? 1.0f : t.factors[first + r]);
      const __m512 add =
          t.add == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, t.add[first + r] + column);
      const __m512 product = t.bias == nullptr ? part.row<kFresh>(r) : _mm512_add_ps(part.row<kFresh>(r), bias);
      const __m512 y = _mm512_fmadd_ps(product, factor, add);
      float* at = t.rows[first + r] + column;
      if (t.stream && mask == 0xffff && reinterpret_cast<uintptr_t>(at) % 64 == 0) {
        _mm512_stream_ps(at, y);
      } else {
        _mm512_mask_storeu_ps(at, mask, y);
      }
    }
  }
};

// 16 or 32 rows times the first `steps` tiles of one block of both panels. between(step) is called between the products
// of each step. Activations are used once per pair and bypass the first-level cache, which then holds the blocks of
// weights.
template <uint32_t kTiles, class Between>
__attribute__((always_inline)) inline void products(const WideBlock& first, const WideBlock& second, const uint8_t* x,
                                                    uint64_t row_bytes, uint32_t steps, Between between) {
  const auto stride = static_cast<long>(row_bytes);
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kTiles == 2) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (uint32_t step = 0; step < steps; ++step, x += 64) {
    _tile_stream_loadd(4, x, stride);
    _tile_loadd(6, first.quants + step * kTileBytes, 64);
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(7, second.quants + step * kTileBytes, 64);
    _tile_dpbssd(1, 4, 7);
    if constexpr (kTiles == 2) {
      _tile_stream_loadd(5, x + kTileRows * row_bytes, stride);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    }
    between(step);
  }
}

void store_sums(int32_t (*sums)[kTileRows][kPanelRows], bool both) {
  _tile_stored(0, sums[0], 64);
  _tile_stored(1, sums[1], 64);
  if (!both) return;
  _tile_stored(2, sums[2], 64);
  _tile_stored(3, sums[3], 64);
}

// The requantization of one block of a pair.
template <swy_dtype kType, uint32_t kPieceWidth>
struct NextBlock {
  Requantizer<kType, kPieceWidth> panels[2];
  uint32_t each = 0, pieces = 0, done = 0;

  void begin(const PanelShape& s, PanelPair pair, uint64_t block, PanelPair later, uint64_t later_block,
             WideBlock* to) {
    each = pieces = done = 0;
    if (pair.first == nullptr) return;
    panels[0].begin(s, pair.first, block, later.first, later_block, to);
    each = pieces = panels[0].pieces();
    if (pair.second == pair.first) return;
    panels[1].begin(s, pair.second, block, later.second, later_block, to + 1);
    pieces *= 2;
  }
  __attribute__((always_inline)) void advance(uint32_t until) {
    uint32_t i = done;
    for (; i < until && i < each; ++i) panels[0].piece(i);
    for (; i < until; ++i) panels[1].piece(i - each);
    done = i;
  }
};

// Prefetches the lines that are added to the products: the rows of a unit, spread over its steps.
class Ahead {
 public:
  Ahead(const TargetColumns& to, uint32_t m, uint32_t steps)
      : m_(to.target != nullptr && to.target->add != nullptr && to.target->add != to.target->rows ? m : 0),
        add_(m_ != 0 ? to.target->add : nullptr),
        at_(to.at),
        share_((kTileGroup + steps - 1) / steps) {}
  void touch(uint32_t first_row, uint32_t step) const {
    const uint32_t begin = first_row + step * share_, end = std::min({begin + share_, first_row + kTileGroup, m_});
    for (uint32_t r = begin; r < end; ++r) {
      _mm_prefetch(reinterpret_cast<const char*>(add_[r] + at_), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(add_[r] + at_ + kPanelRows), _MM_HINT_T0);
    }
  }

 private:
  uint32_t m_;
  const float* const* add_;
  uint64_t at_;
  uint32_t share_;
};

template <swy_dtype kType, uint32_t kPieceWidth>
void multiply_pair(const PanelShape& s, PanelPair pair, PanelPair next_pair, TilePipeline& pipeline,
                   const RowFormat& format, const uint8_t* rows, uint32_t m, Scratch& t, float* first_out,
                   float* second_out, const TargetColumns& target) {
  const bool two = pair.second != pair.first;
  NextBlock<kType, kPieceWidth> next;
  if (pipeline.ready != pair.first) {
    next.begin(s, pair, 0, {}, 0, t.weights[pipeline.turn]);
    next.advance(next.pieces);
  }
  const uint64_t blocks = format.blocks;
  const uint32_t block = format.block;
  const uint32_t units = (m + kTileGroup - 1) / kTileGroup;
  const Ahead ahead(target, m, static_cast<uint32_t>((s.width + 63) / 64));
  Sums waiting;
  for (uint64_t b = 0; b < blocks; ++b, pipeline.turn ^= 1) {
    const WideBlock* w = t.weights[pipeline.turn];
    const bool last = b + 1 == blocks;
    next.begin(s, last ? next_pair : pair, last ? 0 : b + 1, next_pair, b, t.weights[pipeline.turn ^ 1]);
    const uint32_t steps = static_cast<uint32_t>(std::min<uint64_t>(s.width - b * block, block) + 63) / 64;
    const uint32_t share = (next.pieces + units * steps - 1) / (units * steps);
    uint32_t until = 0;
    for (uint32_t r = 0; r < m; r += kTileGroup) {
      const auto between = [&](uint32_t step) __attribute__((always_inline)) {
        until += share;
        next.advance(std::min(until, next.pieces));
        if (step < kSumTiles) waiting.scale(step);
        ahead.touch(r, static_cast<uint32_t>(b) * (block / 64) + step);
      };
      const uint8_t* x = rows + r * format.bytes;
      const bool both = m - r > kTileRows;
      if (both) {
        products<2>(w[0], w[two ? 1 : 0], x + b * block, format.bytes, steps, between);
      } else {
        products<1>(w[0], w[two ? 1 : 0], x + b * block, format.bytes, steps, between);
      }
      waiting.finish(steps);
      store_sums(t.sums, both);
      waiting = {t.sums,
                 {_mm512_load_ps(w[0].scales), _mm512_load_ps(w[two ? 1 : 0].scales)},
                 x + format.scales_at + 4 * b,
                 format.bytes,
                 std::min(kTileGroup, m - r),
                 b == 0,
                 {first_out + r * kPanelRows, two ? second_out + r * kPanelRows : nullptr},
                 target.target != nullptr && last ? &target : nullptr,
                 r};
    }
    next.advance(next.pieces);
  }
  waiting.finish();
}

template <uint32_t kPieceWidth>
auto multiply_pair_of(swy_dtype dtype) {
  return dtype == SWY_I8    ? multiply_pair<SWY_I8, kPieceWidth>
         : dtype == SWY_I4  ? multiply_pair<SWY_I4, kPieceWidth>
         : dtype == SWY_I4A ? multiply_pair<SWY_I4A, kPieceWidth>
                            : multiply_pair<SWY_MXFP4, SWY_MXFP4_GROUP>;
}

}  // namespace

void multiply_tiles_wide(const PanelShape& s, PanelPair pair, PanelPair next_pair, TilePipeline& pipeline,
                         const RowFormat& format, const uint8_t* rows, uint32_t m, void* scratch, float* first_out,
                         float* second_out, const TargetColumns& target) {
  const auto multiply = s.block == 16 ? multiply_pair_of<16>(s.dtype) : multiply_pair_of<32>(s.dtype);
  multiply(s, pair, next_pair, pipeline, format, rows, m, *static_cast<Scratch*>(scratch), first_out, second_out,
           target);
  if (target.target != nullptr && target.target->stream) _mm_sfence();
  pipeline.ready = next_pair.first;
}

}  // namespace cpu
