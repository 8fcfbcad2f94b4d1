// SPDX-License-Identifier: Apache-2.0
// The delta rule of GATED_DELTA for up to 64 tokens at once, as products of bf16 tiles: the WY form of Yang et al.
// 2024, "Gated Delta Networks", section 3.3, solved directly for the chunk's updates, since the state before the chunk
// is known.
//
// With b[t] the sum of the logarithms of the decays up to token t, S the state before the chunk and
//   L[t, j] = beta[t] exp(b[t] - b[j]) (k[t] . k[j]) for j < t,   A[t, j] = exp(b[t] - b[j]) (q[t] . k[j]) for j <= t,
//
// the chunk's updates D [tokens, value_dim], outputs and state are
//   (I + L) D = diag(beta) (V - diag(exp b) K S),   O = diag(exp b) Q S + A D,
//   S' = exp(b[last]) S + K^T diag(exp(b[last] - b)) D.
//
// The triangle is solved in two halves of 32 tokens: the inverse of a half in fp32, the contribution of the first half
// to the second as a product. Operands of products are rounded to bf16; sums, gates and the state are fp32. The
// output's norm magnifies relative errors of outputs that are small by chance, where q is almost at right angles to all
// earlier keys. So products with q, and their operands, keep 16 bits of mantissa (two bf16).
#include <immintrin.h>

#include <cstring>

#include "gated_delta.h"
#include "tile_blocks.h"

namespace cpu {
namespace {

constexpr uint64_t kHalf = kDeltaTokens / 2;

// A right operand [16 columns, 32 of depth] from a left one [16 rows, 32 of depth], whose rows become columns. A
// transposition of 16 by 16 pairs: within groups of 4 lines, then of groups.
void turn(const uint8_t* left, uint8_t* right) {
  __m512i x[16], y[16];
  for (int i = 0; i < 16; ++i) x[i] = _mm512_load_si512(left + i * 64);
  for (int i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512i even0 = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88), odd0 = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
    const __m512i even1 = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
    const __m512i odd1 = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
    _mm512_store_si512(right + i * 64, _mm512_shuffle_i32x4(even0, even1, 0x88));
    _mm512_store_si512(right + (i + 4) * 64, _mm512_shuffle_i32x4(odd0, odd1, 0x88));
    _mm512_store_si512(right + (i + 8) * 64, _mm512_shuffle_i32x4(even0, even1, 0xdd));
    _mm512_store_si512(right + (i + 12) * 64, _mm512_shuffle_i32x4(odd0, odd1, 0xdd));
  }
}

// A left operand [16 rows, 32 of depth] from two right ones of 16 columns each: two rows from each of 8 of their lines.
void transpose(const uint8_t* first, const uint8_t* second, uint8_t* left) {
  const __m512i even = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26, 24,
                                        22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_add_epi16(even, _mm512_set1_epi16(1));
  for (int p = 0; p < 8; ++p) {
    const __m512i a = _mm512_load_si512(first + p * 64), b = _mm512_load_si512(second + p * 64);
    _mm512_store_si512(left + 2 * p * 64, _mm512_permutex2var_epi16(a, even, b));
    _mm512_store_si512(left + (2 * p + 1) * 64, _mm512_permutex2var_epi16(a, odd, b));
  }
}

// Two by two tiles of results (0 to 3), of left (4, 5) and of right operands (6, 7).
inline void multiply_loaded() {
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

// Two-term operands: a number as the sum of two bf16, 16 bits of mantissa. A row of tiles of a left operand, or a
// column of a right one, holds `steps` tiles of the rounded numbers and then as many of the remainders. Two by two
// tiles of
//   rest(a) * b + a * b + a * rest(b),
//
// in an order that loads each tile once.
void multiply_two_term(const uint8_t* a, const uint8_t* b, uint64_t steps, float* c, uint64_t c_stride) {
  const uint64_t rest = steps * kTileBytes, next = 2 * rest;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (uint64_t k = 0; k < steps; ++k, a += kTileBytes, b += kTileBytes) {
    _tile_loadd(6, b, 64);
    _tile_loadd(7, b + next, 64);
    _tile_loadd(4, a + rest, 64);
    _tile_loadd(5, a + rest + next, 64);
    multiply_loaded();
    _tile_loadd(4, a, 64);
    _tile_loadd(5, a + next, 64);
    multiply_loaded();
    _tile_loadd(6, b + rest, 64);
    _tile_loadd(7, b + rest + next, 64);
    multiply_loaded();
  }
  _tile_stored(0, c, 64);
  _tile_stored(1, c + kTileFloats, 64);
  _tile_stored(2, c + c_stride, 64);
  _tile_stored(3, c + c_stride + kTileFloats, 64);
}

// A line of a right operand in two terms. Ties are rounded up, and the remainder is truncated: fewer instructions than
// the conversion to bf16.
void put_two_terms(__m512 even, __m512 odd, uint8_t* rounded, uint8_t* rest) {
  const __m512i half = _mm512_set1_epi32(0x8000), top = _mm512_set1_epi32(-65536);
  const auto round = [&](__m512 x) { return _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x), half), top); };
  const __m512i a = round(even), b = round(odd);
  const __m512i a_rest = _mm512_castps_si512(_mm512_sub_ps(even, _mm512_castsi512_ps(a)));
  const __m512i b_rest = _mm512_castps_si512(_mm512_sub_ps(odd, _mm512_castsi512_ps(b)));
  _mm512_store_si512(rounded, _mm512_or_si512(_mm512_srli_epi32(a, 16), b));
  _mm512_store_si512(rest, _mm512_or_si512(_mm512_srli_epi32(a_rest, 16), _mm512_and_si512(b_rest, top)));
}

// Rows x [64, dim] in a stride as two-term left operand; rows from `tokens` on are zeros.
void take_rows(const float* x, uint64_t stride, uint32_t tokens, uint64_t dim, uint8_t* tiles) {
  const uint64_t rest_at = dim / kTileDepth * kTileBytes;
  for (uint64_t t = 0; t < kDeltaTokens; ++t) {
    uint8_t* to = tiles + t / kTileRows * 2 * rest_at + t % kTileRows * 64;
    for (uint64_t i = 0; i < dim; i += kTileDepth, to += kTileBytes) {
      const bool any = t < tokens;
      const __m512 first = any ? _mm512_loadu_ps(x + t * stride + i) : _mm512_setzero_ps();
      const __m512 second = any ? _mm512_loadu_ps(x + t * stride + i + 16) : _mm512_setzero_ps();
      const __m512i line = line_of(first, second);
      const auto rest = [](__m512 from, __m256i low) {
        return _mm512_sub_ps(from, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(low), 16)));
      };
      _mm512_store_si512(to, line);
      _mm512_store_si512(to + rest_at, line_of(rest(first, _mm512_castsi512_si256(line)),
                                               rest(second, _mm512_extracti64x4_epi64(line, 1))));
    }
  }
}

// The inverses of two unit lower triangles, each [32, 32] and given without its diagonal; in place.
void invert(float* first, float* second) {
  for (uint64_t i = 0; i < kHalf; ++i) {
    const auto unit = [&](uint64_t lane) {
      return _mm512_maskz_mov_ps(static_cast<__mmask16>(i / 16 == lane ? 1u << i % 16 : 0), broadcast(1));
    };
    __m512 a0 = unit(0), a1 = unit(1), b0 = a0, b1 = a1;
    for (uint64_t j = 0; j < i; ++j) {
      const __m512 x = broadcast(first[i * kHalf + j]), y = broadcast(second[i * kHalf + j]);
      a0 = _mm512_fnmadd_ps(x, _mm512_load_ps(first + j * kHalf), a0);
      a1 = _mm512_fnmadd_ps(x, _mm512_load_ps(first + j * kHalf + 16), a1);
      b0 = _mm512_fnmadd_ps(y, _mm512_load_ps(second + j * kHalf), b0);
      b1 = _mm512_fnmadd_ps(y, _mm512_load_ps(second + j * kHalf + 16), b1);
    }
    _mm512_store_ps(first + i * kHalf, a0);
    _mm512_store_ps(first + i * kHalf + 16, a1);
    _mm512_store_ps(second + i * kHalf, b0);
    _mm512_store_ps(second + i * kHalf + 16, b1);
  }
}

// One chunk of one value head. Its columns of values are independent except in the triangles. So 32 of them at a time
// are computed from the old state to the new one, and stay in the first-level cache meanwhile.
class Chunk {
 public:
  Chunk(const DeltaTokens& in, const ChunkScratch& scratch)
      : in_(in), s_(scratch), kd_(in.key_dim), vd_(in.value_dim), steps_(kd_ / kTileDepth) {}

  void run(const float* from, float* to, const float* v, float* o) {
    gates();
    triangles();
    invert(s_.inverse, s_.inverse + kHalf * kHalf);
    for (uint64_t t = 0; t < kDeltaTokens; ++t) {
      const float* x = s_.inverse + t * kHalf;
      _mm512_store_si512(s_.solve + t * 64, line_of(_mm512_load_ps(x), _mm512_load_ps(x + 16)));
    }
    for (uint64_t c = 0; c < vd_; c += 32) {
      apply_state(from == nullptr ? nullptr : from + c);
      right_sides(v + c);
      solve();
      outputs(o + c);
      if (to != nullptr) update(from != nullptr, to + c);
    }
  }

 private:
  static constexpr uint64_t kWidth = 2 * kTileFloats;          // of a row of tiles of results
  static constexpr uint64_t kRows = kDeltaTokens / kTileRows;  // of tiles
  static constexpr uint64_t kColumn = 2 * kTileBytes;          // for an operand whose depth is tokens

  // The first of two lines of token t in results [.., 32]; the second is kTileFloats on.
  static float* line(float* tiles, uint64_t t) { return tiles + t / kTileRows * kWidth + t % kTileRows * 16; }
  // Line of tokens t and t + 1 in the first column of a right operand [tokens, 32]; the second is kColumn on.
  static uint8_t* pair(uint8_t* tiles, uint64_t t) { return tiles + t / kTileDepth * kTileBytes + t % kTileDepth * 32; }

  // b in terms of logarithms to base 2, and its exponentials. Tokens beyond the last change nothing.
  void gates() {
    float sum = 0;
    for (uint32_t t = 0; t < kDeltaTokens; ++t) {
      if (t < in_.tokens) sum += in_.log_decay[t] * kLog2e;
      s_.sum[t] = sum;
      s_.beta[t] = t < in_.tokens ? in_.beta[t] : 0.0f;
    }
    for (uint32_t t = 0; t < kDeltaTokens; t += 16) {
      const __m512 b = _mm512_load_ps(s_.sum + t);
      _mm512_store_ps(s_.before + t, exp2(b));
      _mm512_store_ps(s_.after + t, exp2(_mm512_sub_ps(broadcast(sum), b)));
    }
  }

  // L of both halves, minus L between them, and A.
  void triangles() {
    for (uint64_t t = 0; t < kDeltaTokens; ++t) {
      const float* keys = s_.products + (t / kTileRows * kDeltaTokens + t % kTileRows) * 16;
      const float* queries = keys + kDeltaTokens * kDeltaTokens;
      const __m512 b = broadcast(s_.sum[t]), beta = broadcast(s_.beta[t]);
      __m512 l[4], a[4];
      for (uint64_t j = 0; j < (t < kHalf ? 2 : 4); ++j) {
        const auto before = static_cast<int64_t>(t) - static_cast<int64_t>(j * 16);
        const __m512 share = exp2(_mm512_sub_ps(b, _mm512_load_ps(s_.sum + j * 16)));
        l[j] = _mm512_maskz_mul_ps(first_lanes(before), _mm512_mul_ps(share, beta),
                                   _mm512_load_ps(keys + j * kTileFloats));
        a[j] = _mm512_maskz_mul_ps(first_lanes(before + 1), share, _mm512_load_ps(queries + j * kTileFloats));
      }
      const uint64_t own = t < kHalf ? 0 : 2;
      _mm512_store_ps(s_.inverse + t * kHalf, l[own]);
      _mm512_store_ps(s_.inverse + t * kHalf + 16, l[own + 1]);
      uint8_t* to = s_.mix + (t / kTileRows * 2 * kTileRows + t % kTileRows) * 64;
      _mm512_store_si512(to, line_of(a[0], a[1]));
      if (t < kHalf) continue;
      _mm512_store_si512(to + kTileBytes, line_of(a[2], a[3]));
      const __m512 zero = _mm512_setzero_ps();
      _mm512_store_si512(s_.carry + (t - kHalf) * 64, line_of(_mm512_sub_ps(zero, l[0]), _mm512_sub_ps(zero, l[1])));
    }
  }

  // The state's columns as two-term right operand, and decayed by this chunk; K S and Q S.
  void apply_state(const float* from) {
    if (from == nullptr) {
      std::memset(s_.applied, 0, 2 * kDeltaTokens * 32 * sizeof(float));
      return;
    }
    const uint64_t rest = steps_ * kTileBytes, stride = 2 * rest;
    const __m512 decay = broadcast(s_.before[kDeltaTokens - 1]);
    for (uint64_t i = 0; i < kd_; i += 2, from += 2 * vd_) {
      uint8_t* to = s_.state + i / kTileDepth * kTileBytes + i % kTileDepth * 32;
      float* decayed = line(s_.decayed, i);
      for (uint64_t c = 0; c < 2; ++c, to += stride, decayed += kTileFloats) {
        const __m512 even = _mm512_loadu_ps(from + c * 16), odd = _mm512_loadu_ps(from + vd_ + c * 16);
        put_two_terms(even, odd, to, to + rest);
        _mm512_store_ps(decayed, _mm512_mul_ps(decay, even));
        _mm512_store_ps(decayed + 16, _mm512_mul_ps(decay, odd));
      }
    }
    for (uint64_t r = 0; r < kRows; r += 2) {
      const uint8_t* keys = s_.rows + r * stride;
      multiply_tiles(keys, stride, s_.state, stride, steps_, true, s_.applied + r * kWidth, kWidth);
      multiply_two_term(keys + kRows * stride, s_.state, steps_, s_.applied + (kRows + r) * kWidth, kWidth);
    }
  }

  // diag(beta) (V - diag(exp b) K S): of the first half as right operand, of the second in fp32.
  void right_sides(const float* v) {
    for (uint64_t t = 0; t < kDeltaTokens; t += 2) {
      const float* applied = line(s_.applied, t);
      float* solved = line(s_.solved, t);
      for (uint64_t c = 0; c < 2; ++c) {
        const auto side = [&](uint64_t i, const float* seen) {
          if (i >= in_.tokens) return _mm512_setzero_ps();
          const __m512 x = _mm512_loadu_ps(v + i * in_.value_stride + c * 16);
          const __m512 rest = _mm512_fnmadd_ps(broadcast(s_.before[i]), _mm512_load_ps(seen), x);
          return _mm512_mul_ps(broadcast(s_.beta[i]), rest);
        };
        const __m512 x = side(t, applied + c * kTileFloats), y = side(t + 1, applied + c * kTileFloats + 16);
        if (t < kHalf) {
          _mm512_store_si512(pair(s_.right, t) + c * kColumn, pair_of(x, y));
        } else {
          _mm512_store_ps(solved + c * kTileFloats, x);
          _mm512_store_ps(solved + c * kTileFloats + 16, y);
        }
      }
    }
  }

  void solve() {
    float* second = s_.solved + kRows / 2 * kWidth;
    multiply_tiles(s_.solve, kTileBytes, s_.right, kColumn, 1, true, s_.solved, kWidth);
    take_updates(0);
    multiply_tiles(s_.carry, kTileBytes, s_.updates, kColumn, 1, false, second, kWidth);
    each_pair(second, [&](uint64_t t, uint64_t at, __m512 x, __m512 y) {
      _mm512_store_si512(pair(s_.right, kHalf + t) + at, pair_of(x, y));
    });
    multiply_tiles(s_.solve + 2 * kTileBytes, kTileBytes, s_.right + kTileBytes, kColumn, 1, true, second, kWidth);
    take_updates(kHalf);
  }

  // Calls f(t, offset in an operand, line of t, line of t + 1) for 32 tokens of results.
  template <class Body>
  static void each_pair(const float* results, Body f) {
    for (uint64_t t = 0; t < kHalf; t += 2) {
      const float* x = results + t / kTileRows * kWidth + t % kTileRows * 16;
      for (uint64_t c = 0; c < 2; ++c, x += kTileFloats) f(t, c * kColumn, _mm512_load_ps(x), _mm512_load_ps(x + 16));
    }
  }

  // Updates of 32 tokens as right operands: unchanged, and with the factors for the state.
  void take_updates(uint64_t first) {
    each_pair(line(s_.solved, first), [&](uint64_t i, uint64_t at, __m512 x, __m512 y) {
      const uint64_t t = first + i;
      _mm512_store_si512(pair(s_.updates, t) + at, pair_of(x, y));
      x = _mm512_mul_ps(x, broadcast(s_.after[t]));
      y = _mm512_mul_ps(y, broadcast(s_.after[t + 1]));
      _mm512_store_si512(pair(s_.later, t) + at, pair_of(x, y));
    });
  }

  void outputs(float* o) {
    for (uint64_t half = 0; half < 2; ++half) {
      multiply_tiles(s_.mix + half * 2 * kColumn, kColumn, s_.updates, kColumn, half + 1, true,
                     s_.solved + half * kRows / 2 * kWidth, kWidth);
    }
    const float* queried = s_.applied + kRows * kWidth;
    for (uint64_t t = 0; t < in_.tokens; ++t) {
      const __m512 before = broadcast(s_.before[t]);
      const uint64_t at = t / kTileRows * kWidth + t % kTileRows * 16;
      for (uint64_t c = 0; c < 2; ++c) {
        const __m512 x = _mm512_load_ps(queried + at + c * kTileFloats);
        const __m512 sum = _mm512_fmadd_ps(before, x, _mm512_load_ps(s_.solved + at + c * kTileFloats));
        _mm512_storeu_ps(o + t * in_.out_stride + c * 16, sum);
      }
    }
  }

  // The decayed state, if any, plus the contribution of the updates.
  void update(bool any, float* to) {
    for (uint64_t r = 0; r < kd_ / kTileRows; r += 2) {
      const TileResults decayed{s_.decayed + r * kWidth, 64, kTileFloats, kWidth};
      multiply_tiles(s_.keys_left + r * kColumn, kColumn, s_.later, kColumn, 2, any ? &decayed : nullptr,
                     {to + r * kTileRows * vd_, vd_ * sizeof(float), 16, kTileRows * vd_});
    }
  }

  const DeltaTokens& in_;
  const ChunkScratch& s_;
  const uint64_t kd_, vd_, steps_;
};

}  // namespace

ChunkScratch::ChunkScratch(Arena& arena, const swy_gated_delta_attrs& a)
    : rows(arena.take<uint8_t>(2 * kDeltaTokens * a.key_dim * 4)),
      keys_right(arena.take<uint8_t>(kDeltaTokens * a.key_dim * 4)),
      keys_left(arena.take<uint8_t>(kDeltaTokens * a.key_dim * 2)),
      products(arena.take<float>(2 * kDeltaTokens * kDeltaTokens)),
      solve(arena.take<uint8_t>(4 * kTileBytes)),
      carry(arena.take<uint8_t>(2 * kTileBytes)),
      mix(arena.take<uint8_t>(8 * kTileBytes)),
      state(arena.take<uint8_t>(32 * a.key_dim * 4)),
      right(arena.take<uint8_t>(4 * kTileBytes)),
      updates(arena.take<uint8_t>(4 * kTileBytes)),
      later(arena.take<uint8_t>(4 * kTileBytes)),
      applied(arena.take<float>(2 * kDeltaTokens * 32)),
      solved(arena.take<float>(kDeltaTokens * 32)),
      decayed(arena.take<float>(a.key_dim * 32)),
      inverse(arena.take<float>(kDeltaTokens * kHalf)),
      sum(arena.take<float>(kDeltaTokens)),
      before(arena.take<float>(kDeltaTokens)),
      after(arena.take<float>(kDeltaTokens)),
      beta(arena.take<float>(kDeltaTokens)) {}

void chunk_keys(const DeltaTokens& in, const ChunkScratch& s) {
  const uint64_t kd = in.key_dim, steps = kd / kTileDepth, rest = steps * kTileBytes, stride = 2 * rest;
  const uint64_t rows = kDeltaTokens / kTileRows, width = rows * kTileFloats;
  take_rows(in.k, in.key_stride, in.tokens, kd, s.rows);
  take_rows(in.q, in.key_stride, in.tokens, kd, s.rows + rows * stride);
  for (uint64_t r = 0; r < rows; ++r) {
    for (uint64_t k = 0; k < rest; k += kTileBytes) {
      turn(s.rows + r * stride + k, s.keys_right + r * stride + k);
      turn(s.rows + r * stride + rest + k, s.keys_right + r * stride + rest + k);
    }
  }
  for (uint64_t r = 0; r < kd / kTileRows; ++r) {
    for (uint64_t k = 0; k < 2; ++k) {
      const uint8_t* from = s.keys_right + 2 * k * stride + r / 2 * kTileBytes + r % 2 * 8 * 64;
      transpose(from, from + stride, s.keys_left + (2 * r + k) * kTileBytes);
    }
  }
  for (uint64_t r = 0; r < rows; r += 2) {
    for (uint64_t c = 0; c <= r; c += 2) {
      const uint8_t *keys = s.rows + r * stride, *right = s.keys_right + c * stride;
      float* to = s.products + r * width + c * kTileFloats;
      multiply_tiles(keys, stride, right, stride, steps, true, to, width);
      multiply_two_term(keys + rows * stride, right, steps, to + rows * width, width);
    }
  }
}

void chunk_head(const DeltaTokens& in, const ChunkScratch& s, const float* from, float* to, const float* v, float* o) {
  Chunk(in, s).run(from, to, v, o);
}

}  // namespace cpu
