// SPDX-License-Identifier: Apache-2.0
// multiply_tiles_int8: AMX int8 tiles.
//
// Two panels are processed together, so that a tile of activations is loaded once for both. Along the width the work is
// divided into stretches that fit the first-level cache: a stretch of the panels is unpacked into signed bytes; then
// for every 16 rows one tile of sums per block is computed and stored, and the sums of all blocks are scaled and added
// up.
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "multiply.h"

#include "tiles.h"

namespace cpu {
namespace {

constexpr uint32_t kTailRows = 8;
constexpr uint32_t kStretchBlocks = 8;
constexpr uint32_t kStretch = 256;  // elements along the width

// Memory of one stretch besides the operands. The weights of the next stretch are unpacked while this one is
// multiplied, a block at a time: a tile that is loaded right after it was stored waits for the stores.
struct Stretch {
  alignas(64) int8_t weights[2][2][kStretch * kPanelRows];  // by turn, by panel
  alignas(64) int32_t sums[2][kStretchBlocks][kTileRows][kPanelRows];
};

// Lines of quants as signed bytes (i4a: unsigned nibbles).
inline void unpack(swy_dtype dtype, const uint8_t* line, uint64_t lines, int8_t* to) {
  if (dtype == SWY_I8) {
    const __m512i flip = _mm512_set1_epi8(-128);
    for (uint64_t i = 0; i < lines; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(line) + i * 64 + 4096, _MM_HINT_T0);
      _mm512_store_si512(to + i * 64, _mm512_xor_si512(_mm512_loadu_si512(line + i * 64), flip));
    }
    return;
  }
  if (dtype == SWY_MXFP4) {
    const __m512i table = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kTwiceE2m1)));
    const __m512i nibble = _mm512_set1_epi8(15);
    for (uint64_t i = 0; i < lines; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(line) + i * 64 + 4096, _MM_HINT_T0);
      const __m512i w = _mm512_loadu_si512(line + i * 64), high = _mm512_srli_epi16(w, 4);
      _mm512_store_si512(to + i * 128, _mm512_shuffle_epi8(table, _mm512_and_si512(w, nibble)));
      _mm512_store_si512(to + i * 128 + 64, _mm512_shuffle_epi8(table, _mm512_and_si512(high, nibble)));
    }
    return;
  }
  const __m512i low = _mm512_set1_epi8(15), zero = _mm512_set1_epi8(dtype == SWY_I4 ? 8 : 0);
  for (uint64_t i = 0; i < lines; ++i) {
    _mm_prefetch(reinterpret_cast<const char*>(line) + i * 64 + 4096, _MM_HINT_T0);
    const __m512i w = _mm512_loadu_si512(line + i * 64);
    _mm512_store_si512(to + i * 128, _mm512_sub_epi8(_mm512_and_si512(w, low), zero));
    _mm512_store_si512(to + i * 128 + 64, _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi16(w, 4), low), zero));
  }
}

// The blocks that are unpacked meanwhile: of two panels, into the weights of the other turn.
struct Unpacking {
  swy_dtype dtype;
  const uint8_t *first, *second;  // lines of the next stretch; `second` NULL: one panel only
  uint64_t lines;                 // per block
  uint32_t blocks;
  int8_t *to_first, *to_second;

  void block(uint32_t b, uint64_t bytes) const {
    if (b >= blocks) return;
    unpack(dtype, first + b * lines * 64, lines, to_first + b * bytes);
    if (second != nullptr) unpack(dtype, second + b * lines * 64, lines, to_second + b * bytes);
  }
};

// sums[0 .. 1][b] = 16 rows x [16, width] times both panels, over block b. kPasses products of at most 64 make a
// block. Tile numbers are immediates: even and odd blocks have different tiles, so that one is stored while the next is
// computed.
template <uint32_t kPasses>
void tile_products(Stretch& s, uint32_t turn, uint64_t block, uint32_t blocks, const uint8_t* rows, long row_bytes,
                   const Unpacking* next) {
  const uint64_t depth = block / kPasses, bytes = block * kPanelRows;
  for (uint32_t b = 0; b < blocks; ++b) {
    const uint8_t* x = rows + b * block;
    const int8_t *w0 = s.weights[turn][0] + b * bytes, *w1 = s.weights[turn][1] + b * bytes;
    if (b % 2 == 0) {
      _tile_zero(0);
      _tile_zero(1);
      for (uint32_t p = 0; p < kPasses; ++p) {
        _tile_loadd(4, x + p * depth, row_bytes);
        _tile_loadd(6, w0 + p * depth * kPanelRows, 64);
        _tile_dpbssd(0, 4, 6);
        _tile_loadd(7, w1 + p * depth * kPanelRows, 64);
        _tile_dpbssd(1, 4, 7);
      }
      _tile_stored(0, s.sums[0][b], 64);
      _tile_stored(1, s.sums[1][b], 64);
    } else {
      _tile_zero(2);
      _tile_zero(3);
      for (uint32_t p = 0; p < kPasses; ++p) {
        _tile_loadd(5, x + p * depth, row_bytes);
        _tile_loadd(6, w0 + p * depth * kPanelRows, 64);
        _tile_dpbssd(2, 5, 6);
        _tile_loadd(7, w1 + p * depth * kPanelRows, 64);
        _tile_dpbssd(3, 5, 7);
      }
      _tile_stored(2, s.sums[0][b], 64);
      _tile_stored(3, s.sums[1][b], 64);
    }
    if (next != nullptr) next->block(b, bytes);
  }
}

// 16 rows' scales.
template <bool kExponents>
__m512 weight_scales(const uint8_t* p) {
  if constexpr (!kExponents) return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  const __m512i bits =
      _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 23);
  return _mm512_mul_ps(_mm512_castsi512_ps(_mm512_max_epu32(bits, _mm512_set1_epi32(kLeastE8m0))),
                       _mm512_set1_ps(0.5f));
}

// out [16, 16] += the blocks' sums, scaled; from `first` on. With `fresh` out begins at zero.
template <bool kOffsets, bool kExponents>
void add_blocks(const PanelShape& s, const uint8_t* panel, const RowFormat& format, const uint8_t* rows, uint64_t first,
                uint32_t blocks, const int32_t (*sums)[kTileRows][kPanelRows], bool fresh, float* out) {
  __m512 total[kTileRows];
#pragma GCC unroll 16
  for (uint32_t r = 0; r < kTileRows; ++r) {
    total[r] = fresh ? _mm512_setzero_ps() : _mm512_loadu_ps(out + r * kPanelRows);
  }
  for (uint32_t b = 0; b < blocks; ++b) {
    const uint64_t g = s.groups == 1 ? 0 : (first + b) * s.group_bytes;
    const __m512 scale = weight_scales<kExponents>(panel + s.scales_at + g);
#pragma GCC unroll 16
    for (uint32_t r = 0; r < kTileRows; ++r) {
      const __m512 dots = _mm512_cvtepi32_ps(_mm512_load_si512(sums[b][r]));
      const __m512 x = _mm512_set1_ps(scale_at(rows + r * format.bytes, format, first + b));
      total[r] = _mm512_fmadd_ps(_mm512_mul_ps(dots, x), scale, total[r]);
    }
    if constexpr (kOffsets) {
      const __m512 offset =
          _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel + s.offsets_at + g)));
#pragma GCC unroll 16
      for (uint32_t r = 0; r < kTileRows; ++r) {
        const uint8_t* row = rows + r * format.bytes;
        const float sum = static_cast<float>(sum_at(row, format, first + b)) * scale_at(row, format, first + b);
        total[r] = _mm512_fmadd_ps(_mm512_set1_ps(sum), offset, total[r]);
      }
    }
  }
#pragma GCC unroll 16
  for (uint32_t r = 0; r < kTileRows; ++r) _mm512_storeu_ps(out + r * kPanelRows, total[r]);
}

}  // namespace

void multiply_tiles_int8(const PanelShape& s, const uint8_t* first, const uint8_t* second, const RowFormat& format,
                         const uint8_t* rows, uint32_t m, void* scratch, float* first_out, float* second_out) {
  static_assert(sizeof(Stretch) <= kTileScratch);
  // A tile of few rows takes as long as a full one; vectors give the same bits faster.
  if (const uint32_t tail = m % kTileRows; tail != 0 && tail <= kTailRows) {
    m -= tail;
    const uint64_t at = uint64_t{m} * kPanelRows;
    multiply(s, first, format, rows + m * format.bytes, tail, first_out + at);
    if (second != first) multiply(s, second, format, rows + m * format.bytes, tail, second_out + at);
    if (m == 0) return;
  }
  Stretch& stretch = *static_cast<Stretch*>(scratch);
  const uint32_t step = std::min(kStretch / s.block, kStretchBlocks);
  const uint64_t lines = s.block_bytes / 64;  // of one block
  const auto products = s.block == 128 ? tile_products<2> : tile_products<1>;
  const auto add = s.dtype == SWY_I4A     ? add_blocks<true, false>
                   : s.dtype == SWY_MXFP4 ? add_blocks<false, true>
                                          : add_blocks<false, false>;
  const auto blocks_at = [&](uint64_t b) { return static_cast<uint32_t>(std::min<uint64_t>(step, s.blocks - b)); };
  const auto unpacking = [&](uint64_t b, uint32_t turn) {
    return Unpacking{s.dtype,
                     first + b * s.block_bytes,
                     second != first ? second + b * s.block_bytes : nullptr,
                     lines,
                     b < s.blocks ? blocks_at(b) : 0,
                     stretch.weights[turn][0],
                     stretch.weights[turn][1]};
  };
  const Unpacking begin = unpacking(0, 0);
  for (uint32_t b = 0; b < begin.blocks; ++b) begin.block(b, uint64_t{s.block} * kPanelRows);
  uint32_t turn = 0;
  for (uint64_t b = 0; b < s.blocks; b += step, turn ^= 1) {
    const Unpacking next = unpacking(b + step, turn ^ 1);
    for (uint32_t r = 0; r < m; r += kTileRows) {
      const uint8_t* x = rows + r * format.bytes;
      products(stretch, turn, s.block, blocks_at(b), x + b * s.block, static_cast<long>(format.bytes),
               r == 0 ? &next : nullptr);
      add(s, first, format, x, b, blocks_at(b), stretch.sums[0], b == 0, first_out + r * kPanelRows);
      if (second == first) continue;
      add(s, second, format, x, b, blocks_at(b), stretch.sums[1], b == 0, second_out + r * kPanelRows);
    }
  }
}

}  // namespace cpu
