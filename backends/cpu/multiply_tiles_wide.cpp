// multiply_tiles_wide: AMX int8 tiles, two tiles of rows by two panels.
//
// Tiles and vectors work at the same time: between the products of one block stand the scaling of the sums of the unit
// before (two tiles of rows by one block), and pieces of the next block's requantization. The block after the last of a
// pair is the first of the next pair, so that nothing waits at a pair's begin.
#include "multiply.h"
#include "requantize.h"
#include "tiles.h"

namespace cpu {
namespace {

constexpr uint32_t kSteps = kWideBlock / 64;  // products of tiles per block
constexpr uint64_t kTileBytes = 1024;

struct Scratch {
  WideBlock weights[2][2];  // by turn, by panel
  alignas(64) int32_t sums[2][4][kTileRows][kPanelRows];
};
static_assert(sizeof(Scratch) <= kTileScratch);

// Sums of up to two tiles of rows with both panels that wait to be scaled and added to the outputs.
struct Sums {
  const int32_t (*sums)[kTileRows][kPanelRows] = nullptr;  // [tile of rows * 2 + panel]
  __m512 weights[2];                                       // scales, by panel
  const uint8_t* scales = nullptr;                         // of the first row, for the block
  uint64_t row_bytes = 0;
  uint32_t rows = 0;
  bool fresh = false;  // the outputs begin at zero
  float* out[2] = {};  // of the first row; NULL: not wanted

  // One of the four tiles.
  void add(uint32_t tile) const {
    const uint32_t first = tile / 2 * kTileRows;
    if (rows <= first || out[tile % 2] == nullptr) return;
    const uint32_t n = std::min(rows - first, kTileRows);
    float* to = out[tile % 2] + first * kPanelRows;
    const uint8_t* x = scales + first * row_bytes;
#pragma GCC unroll 4
    for (uint32_t r = 0; r < n; ++r, x += row_bytes) {
      float scale;
      std::memcpy(&scale, x, 4);
      const __m512 dots = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums[tile][r])), _mm512_set1_ps(scale));
      const __m512 before = fresh ? _mm512_setzero_ps() : _mm512_load_ps(to + r * kPanelRows);
      _mm512_store_ps(to + r * kPanelRows, _mm512_fmadd_ps(dots, weights[tile % 2], before));
    }
  }
};

// 16 or 32 rows times one block of both panels, with between(step) after each step.
template <uint32_t kTiles, class Between>
void products(const WideBlock& first, const WideBlock& second, const uint8_t* x, uint64_t row_bytes, Between between) {
  const auto stride = static_cast<long>(row_bytes);
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kTiles == 2) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (uint32_t step = 0; step < kSteps; ++step, x += 64) {
    _tile_loadd(4, x, stride);
    _tile_loadd(6, first.quants + step * kTileBytes, 64);
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(7, second.quants + step * kTileBytes, 64);
    _tile_dpbssd(1, 4, 7);
    if constexpr (kTiles == 2) {
      _tile_loadd(5, x + kTileRows * row_bytes, stride);
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
struct NextBlock {
  Requantizer panels[2];
  uint32_t pieces = 0, done = 0;

  void begin(const PanelShape& s, PanelPair pair, uint64_t block, WideBlock* to) {
    done = 0;
    pieces = pair.first == nullptr ? 0 : pair.second == pair.first ? Requantizer::kPieces : 2 * Requantizer::kPieces;
    if (pieces == 0) return;
    panels[0].begin(s, pair.first, block, to);
    if (pair.second != pair.first) panels[1].begin(s, pair.second, block, to + 1);
  }
  void advance(uint32_t n) {
    for (; n > 0 && done < pieces; --n, ++done) panels[done / Requantizer::kPieces].piece();
  }
};

}  // namespace

void multiply_tiles_wide(const PanelShape& s, PanelPair pair, PanelPair next_pair, TilePipeline& pipeline,
                         const RowFormat& format, const uint8_t* rows, uint32_t m, void* scratch, float* first_out,
                         float* second_out) {
  Scratch& t = *static_cast<Scratch*>(scratch);
  const bool two = pair.second != pair.first;
  NextBlock next;
  if (pipeline.ready != pair.first) {
    next.begin(s, pair, 0, t.weights[pipeline.turn]);
    next.advance(next.pieces);
  }
  const uint64_t blocks = format.blocks;
  const uint32_t units = (m + kTileGroup - 1) / kTileGroup;
  Sums waiting;
  uint32_t sums_turn = 0;
  for (uint64_t b = 0; b < blocks; ++b, pipeline.turn ^= 1) {
    const WideBlock* w = t.weights[pipeline.turn];
    WideBlock* to = t.weights[pipeline.turn ^ 1];
    b + 1 < blocks ? next.begin(s, pair, b + 1, to) : next.begin(s, next_pair, 0, to);
    const uint32_t share = (next.pieces + units * kSteps - 1) / (units * kSteps);
    for (uint32_t r = 0; r < m; r += kTileGroup, sums_turn ^= 1) {
      const auto between = [&](uint32_t step) {
        waiting.add(step);
        next.advance(share);
      };
      const uint8_t* x = rows + r * format.bytes;
      const bool both = m - r > kTileRows;
      const auto f = both ? products<2, decltype(between)> : products<1, decltype(between)>;
      f(w[0], w[two ? 1 : 0], x + b * kWideBlock, format.bytes, between);
      store_sums(t.sums[sums_turn], both);
      waiting = {t.sums[sums_turn],
                 {_mm512_load_ps(w[0].scales), _mm512_load_ps(w[two ? 1 : 0].scales)},
                 x + format.scales_at + 4 * b,
                 format.bytes,
                 std::min(kTileGroup, m - r),
                 b == 0,
                 {first_out + r * kPanelRows, two ? second_out + r * kPanelRows : nullptr}};
    }
  }
  for (uint32_t tile = 0; tile < 4; ++tile) waiting.add(tile);
  pipeline.ready = next_pair.first;
}

}  // namespace cpu
