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

constexpr uint32_t kSlots = 4;  // in a step of tiles
constexpr uint64_t kTileBytes = 1024;

struct Scratch {
  WideBlock weights[2][2];  // by turn, by panel
  alignas(64) int32_t sums[4][kTileRows][kPanelRows];
};
static_assert(sizeof(Scratch) <= kTileScratch);

// Sums of up to two tiles of rows with both panels that wait to be scaled and added to what the blocks before gave.
class Sums {
 public:
  const int32_t (*sums)[kTileRows][kPanelRows] = nullptr;  // [tile of rows * 2 + panel]
  __m512 weights[2];                                       // scales, by panel
  const uint8_t* scales = nullptr;                         // of the first row, for the block
  uint64_t row_bytes = 0;
  uint32_t rows = 0;
  bool fresh = false;                 // this is the first block
  float* total[2] = {};               // [rows, 16], of the blocks before and with these; NULL: not wanted
  const TargetColumns* to = nullptr;  // after the last block: goes there instead
  uint32_t first_row = 0;             // in the target
  uint32_t done = 0;                  // parts

  // Does one tile while there is any.
  void advance() {
    if (done == kParts) return;
    const uint32_t panel = done % 2, first = done / 2 * kTileRows;
    const int32_t(*from)[kPanelRows] = sums[done];
    ++done;
    if (rows <= first || total[panel] == nullptr) return;
    const uint32_t n = std::min(rows - first, kPartRows);
    const Part part{from, scales + first * row_bytes, row_bytes, total[panel] + first * kPanelRows, weights[panel]};
    if (to != nullptr) {
      fresh ? put<true>(part, panel, first_row + first, n) : put<false>(part, panel, first_row + first, n);
    } else if (n == kPartRows) {
      fresh ? accumulate<true>(part, kPartRows) : accumulate<false>(part, kPartRows);
    } else {
      fresh ? accumulate<true>(part, n) : accumulate<false>(part, n);
    }
  }
  void finish() {
    while (done < kParts) advance();
  }

 private:
  static constexpr uint32_t kParts = 4, kPartRows = kTileRows;

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
  void put(const Part part, uint32_t panel, uint32_t first, uint32_t n) const {
    const RowTarget& t = *to->target;
    const auto mask = static_cast<__mmask16>((1u << std::min(to->count - panel * kPanelRows, kPanelRows)) - 1);
    const uint64_t column = to->at + panel * kPanelRows;
    for (uint32_t r = 0; r < n; ++r) {
      const __m512 factor = _mm512_set1_ps(t.factors == nullptr ? 1.0f : t.factors[first + r]);
      const __m512 add =
          t.add == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, t.add[first + r] + column);
      const __m512 y = _mm512_fmadd_ps(part.row<kFresh>(r), factor, add);
      float* at = t.rows[first + r] + column;
      if (t.stream && mask == 0xffff && reinterpret_cast<uintptr_t>(at) % 64 == 0) {
        _mm512_stream_ps(at, y);
      } else {
        _mm512_mask_storeu_ps(at, mask, y);
      }
    }
  }
};

// 16 or 32 rows times the first `steps` tiles of one block of both panels. between(step, slot) comes kSlots times in
// each step: what it does hides how long a tile takes to load.
template <uint32_t kTiles, class Between>
void products(const WideBlock& first, const WideBlock& second, const uint8_t* x, uint64_t row_bytes, uint32_t steps,
              Between between) {
  const auto stride = static_cast<long>(row_bytes);
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kTiles == 2) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (uint32_t step = 0; step < steps; ++step, x += 64) {
    _tile_loadd(4, x, stride);
    _tile_loadd(6, first.quants + step * kTileBytes, 64);
    between(step, 0);
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(7, second.quants + step * kTileBytes, 64);
    between(step, 1);
    _tile_dpbssd(1, 4, 7);
    if constexpr (kTiles == 2) _tile_loadd(5, x + kTileRows * row_bytes, stride);
    between(step, 2);
    if constexpr (kTiles == 2) {
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    }
    between(step, 3);
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

  void begin(const PanelShape& s, PanelPair pair, uint64_t block, PanelPair later, uint64_t later_block,
             WideBlock* to) {
    done = 0;
    pieces = pair.first == nullptr ? 0 : pair.second == pair.first ? Requantizer::kPieces : 2 * Requantizer::kPieces;
    if (pieces == 0) return;
    panels[0].begin(s, pair.first, block, later.first, later_block, to);
    if (pair.second != pair.first) panels[1].begin(s, pair.second, block, later.second, later_block, to + 1);
  }
  void advance(uint32_t n) {
    for (; n > 0 && done < pieces; --n, ++done) panels[done / Requantizer::kPieces].piece();
  }
};

// Brings the lines that are added to the products near while there is time: the rows of a unit, spread over its steps.
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

}  // namespace

void multiply_tiles_wide(const PanelShape& s, PanelPair pair, PanelPair next_pair, TilePipeline& pipeline,
                         const RowFormat& format, const uint8_t* rows, uint32_t m, void* scratch, float* first_out,
                         float* second_out, const TargetColumns& target) {
  Scratch& t = *static_cast<Scratch*>(scratch);
  const bool two = pair.second != pair.first;
  NextBlock next;
  if (pipeline.ready != pair.first) {
    next.begin(s, pair, 0, {}, 0, t.weights[pipeline.turn]);
    next.advance(next.pieces);
  }
  const uint64_t blocks = format.blocks;
  const uint32_t units = (m + kTileGroup - 1) / kTileGroup;
  const Ahead ahead(target, m, static_cast<uint32_t>((s.width + 63) / 64));
  Sums waiting;
  waiting.finish();
  for (uint64_t b = 0; b < blocks; ++b, pipeline.turn ^= 1) {
    const WideBlock* w = t.weights[pipeline.turn];
    const bool last = b + 1 == blocks;
    next.begin(s, last ? next_pair : pair, last ? 0 : b + 1, next_pair, b, t.weights[pipeline.turn ^ 1]);
    const uint32_t steps = static_cast<uint32_t>(std::min<uint64_t>(s.width - b * kWideBlock, kWideBlock) + 63) / 64;
    const uint32_t share = (next.pieces + units * steps * kSlots - 1) / (units * steps * kSlots);
    for (uint32_t r = 0; r < m; r += kTileGroup) {
      const auto between = [&](uint32_t step, uint32_t slot) {
        next.advance(share);
        if (slot + 1 < kSlots) return;
        waiting.advance();
        ahead.touch(r, static_cast<uint32_t>(b) * (kWideBlock / 64) + step);
      };
      const uint8_t* x = rows + r * format.bytes;
      const bool both = m - r > kTileRows;
      const auto f = both ? products<2, decltype(between)> : products<1, decltype(between)>;
      f(w[0], w[two ? 1 : 0], x + b * kWideBlock, format.bytes, steps, between);
      waiting.finish();
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
  if (target.target != nullptr && target.target->stream) _mm_sfence();
  pipeline.ready = next_pair.first;
}

}  // namespace cpu
