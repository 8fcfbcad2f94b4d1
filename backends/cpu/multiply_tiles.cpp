// multiply_tiles: AMX int8 tiles. A panel is unpacked once into signed bytes, 16 rows by the whole width, then every
// group of 16 rows of activations runs over it; sums stay in registers.
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "multiply.h"

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c,amx-tile,amx-int8")

namespace cpu {
namespace {

constexpr uint32_t kTileRows = 16;

// The palette's layout (Intel SDM, LDTILECFG).
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles: 0, 1 sums; 2, 3 activations; 4, 5 weights.
TileConfig config_for(uint32_t depth) {  // elements along the width in one product, at most 64
  TileConfig c;
  for (int t : {0, 1}) c.rows[t] = kTileRows, c.row_bytes[t] = 64;
  for (int t : {2, 3}) c.rows[t] = kTileRows, c.row_bytes[t] = static_cast<uint16_t>(depth);
  for (int t : {4, 5}) c.rows[t] = static_cast<uint8_t>(depth / 4), c.row_bytes[t] = 64;
  return c;
}

// The panel's quants as signed bytes (i4a: unsigned nibbles), in the order of the lines.
void unpack(const PanelShape& s, const uint8_t* panel, int8_t* strip) {
  const uint64_t lines = s.blocks * s.block_bytes / 64;
  if (s.dtype == SWY_I8) {
    const __m512i flip = _mm512_set1_epi8(-128);
    for (uint64_t i = 0; i < lines; ++i) {
      const __m512i w = _mm512_loadu_si512(panel + i * 64);
      _mm512_storeu_si512(strip + i * 64, _mm512_xor_si512(w, flip));
    }
    return;
  }
  const __m512i low = _mm512_set1_epi8(15), zero = _mm512_set1_epi8(s.dtype == SWY_I4 ? 8 : 0);
  for (uint64_t i = 0; i < lines; ++i) {
    _mm_prefetch(reinterpret_cast<const char*>(panel) + i * 64 + 4096, _MM_HINT_T0);
    const __m512i w = _mm512_loadu_si512(panel + i * 64);
    _mm512_storeu_si512(strip + i * 128, _mm512_sub_epi8(_mm512_and_si512(w, low), zero));
    _mm512_storeu_si512(strip + i * 128 + 64, _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi16(w, 4), low), zero));
  }
}

// One group of 16 rows against the strip. kPasses products of 64 (or one of 32) make a block.
template <uint32_t kPasses, bool kOffsets>
void tile_rows(const PanelShape& s, const uint8_t* panel, const RowFormat& format, const uint8_t* rows, uint32_t count,
               const int8_t* strip, float* out) {
  alignas(64) int32_t sums[2][kTileRows][kPanelRows];
  __m512 total[kTileRows];
  for (auto& t : total) t = _mm512_setzero_ps();
  const uint64_t depth = s.block / kPasses;
  const auto add_block = [&](uint64_t b, const int32_t(*block)[kPanelRows]) {
    const uint64_t g = s.groups == 1 ? 0 : b * kPanelRows * 2;
    const __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel + s.scales_at + g)));
#pragma GCC unroll 16
    for (uint32_t r = 0; r < kTileRows; ++r) {
      const __m512 dots = _mm512_cvtepi32_ps(_mm512_load_si512(block[r]));
      const __m512 x = _mm512_set1_ps(scale_at(rows + r * format.bytes, format, b));
      total[r] = _mm512_fmadd_ps(_mm512_mul_ps(dots, x), scale, total[r]);
    }
    if constexpr (kOffsets) {
      const __m512 offset =
          _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel + s.offsets_at + g)));
#pragma GCC unroll 16
      for (uint32_t r = 0; r < kTileRows; ++r) {
        const uint8_t* row = rows + r * format.bytes;
        const float sum = static_cast<float>(sum_at(row, format, b)) * scale_at(row, format, b);
        total[r] = _mm512_fmadd_ps(_mm512_set1_ps(sum), offset, total[r]);
      }
    }
  };
  // Tile numbers are immediates: two blocks a turn, so that one block's sums leave while the next one's are made.
  const auto product_even = [&](uint64_t b) {
    _tile_zero(0);
    for (uint32_t p = 0; p < kPasses; ++p) {
      _tile_loadd(2, rows + b * s.block + p * depth, static_cast<long>(format.bytes));
      _tile_loadd(4, strip + (b * s.block + p * depth) * kPanelRows, 64);
      _tile_dpbssd(0, 2, 4);
    }
    _tile_stored(0, sums[0], 64);
  };
  const auto product_odd = [&](uint64_t b) {
    _tile_zero(1);
    for (uint32_t p = 0; p < kPasses; ++p) {
      _tile_loadd(3, rows + b * s.block + p * depth, static_cast<long>(format.bytes));
      _tile_loadd(5, strip + (b * s.block + p * depth) * kPanelRows, 64);
      _tile_dpbssd(1, 3, 5);
    }
    _tile_stored(1, sums[1], 64);
  };
  product_even(0);
  for (uint64_t b = 0; b < s.blocks; ++b) {
    if (b + 1 < s.blocks) (b % 2 == 0) ? product_odd(b + 1) : product_even(b + 1);
    add_block(b, sums[b % 2]);
  }
  for (uint32_t r = 0; r < count; ++r) _mm512_storeu_ps(out + r * kPanelRows, total[r]);
}

}  // namespace

uint64_t strip_bytes(const PanelShape& shape) { return shape.blocks * shape.block * kPanelRows; }

void tiles_begin(uint32_t block) {
  const TileConfig config = config_for(std::min(block, 64u));
  __asm__ volatile("" : : "r"(&config) : "memory");  // GCC 12 declares 8 of the 64 bytes that the next line reads
  _tile_loadconfig(&config);
}
void tiles_end() { _tile_release(); }

void multiply_tiles(const PanelShape& s, const uint8_t* panel, const RowFormat& format, const uint8_t* rows, uint32_t m,
                    int8_t* strip, float* out) {
  unpack(s, panel, strip);
  const auto pick = [&](auto offsets) {
    constexpr bool kOffsets = decltype(offsets)::value;
    return s.block == 128 ? tile_rows<2, kOffsets> : tile_rows<1, kOffsets>;
  };
  const auto f = s.dtype == SWY_I4A ? pick(std::true_type()) : pick(std::false_type());
  for (uint32_t r = 0; r < m; r += kTileRows) {
    f(s, panel, format, rows + r * format.bytes, std::min(kTileRows, m - r), strip, out + r * kPanelRows);
  }
}

}  // namespace cpu
