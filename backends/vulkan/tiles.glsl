// SPDX-License-Identifier: Apache-2.0
// Tiles of products: C [kBM, kBN] = A B^T, A of activations, B of weights in any encoding that is readable in pieces.
//
// COOPERATIVE: fp16 factors (tiles_prepare.comp makes A's), matrix instructions (tiles_matrix.glsl). Otherwise fp32 by
// all threads.
//
// The including shader defines:
//   uint64_t a_row(uint m)      where row m of the tile begins
//   void find_b_row(uint n)     sets b_data, b_scale, b_offset: where row n of the tile begins, and its first scale
//   void finish(uint m, uint n, vec4 v, vec4 w)   takes results: columns n .. n + 3 of row m; with kPairs, n counts
//                                                 pairs of columns, v is from the first and w from the second of each
//                                                 pair
//
// Pairs: of every 32 rows of B the first 16 are the first ones of 16 pairs.

uint64_t b_data, b_scale, b_offset;

// Quants are unpacked into the mantissa of a float between 1 and 2.
void eight_of_bytes(uint a, uint b, vec2 scale, out vec4 low, out vec4 high) {
  a ^= 0x80808080u;
  b ^= 0x80808080u;
  low = uintBitsToFloat((uvec4(a << 15, a << 7, a >> 1, a >> 9) & 0x7f8000u) | 0x3f800000u);
  high = uintBitsToFloat((uvec4(b << 15, b << 7, b >> 1, b >> 9) & 0x7f8000u) | 0x3f800000u);
  low = (low - 1.5) * (256 * scale.x);
  high = (high - 1.5) * (256 * scale.x);
}
void eight_of_nibbles(uint dtype, uint q, vec2 scale, out vec4 low, out vec4 high) {
  low = uintBitsToFloat((uvec4(q << 19, q << 15, q << 11, q << 7) & 0x780000u) | 0x3f800000u);
  high = uintBitsToFloat((uvec4(q << 3, q >> 1, q >> 5, q >> 9) & 0x780000u) | 0x3f800000u);
  float zero = dtype == I4 ? 1.5 : 1.0;
  low = fma(low - zero, vec4(16 * scale.x), vec4(scale.y));
  high = fma(high - zero, vec4(16 * scale.x), vec4(scale.y));
}

void eight_of_numbers(uint q, float scale, out vec4 low, out vec4 high) {
  low = numbers_of(uvec4(q, q >> 4, q >> 8, q >> 12) & 15) * scale;
  high = numbers_of(uvec4(q >> 16, q >> 20, q >> 24, q >> 28) & 15) * scale;
}

// Eight elements of a weight's row from element 8 i on: words of quants, then the floats.
void eight(uint dtype, uint64_t data, uint i, vec2 scale, out vec4 low, out vec4 high) {
  if (dtype == F32) {
    low = Float4s(data + 32 * i).at[0];
    high = Float4s(data + 32 * i).at[1];
  } else if (dtype == BF16) {
    uvec4 h = Word4s(data + 16 * i).at[0];
    low = uintBitsToFloat(uvec4(h.x << 16, h.x & 0xffff0000u, h.y << 16, h.y & 0xffff0000u));
    high = uintBitsToFloat(uvec4(h.z << 16, h.z & 0xffff0000u, h.w << 16, h.w & 0xffff0000u));
  } else if (dtype == I8) {
    eight_of_bytes(Words(data + 8 * i).at[0], Words(data + 8 * i).at[1], scale, low, high);
  } else if (dtype == MXFP4) {
    eight_of_numbers(Words(data + 4 * i).at[0], scale.x, low, high);
  } else {
    eight_of_nibbles(dtype, Words(data + 4 * i).at[0], scale, low, high);
  }
}

// Scale and offset of element k of the row set by find_b_row.
vec2 scale_of(Weight w, uint k) {
  if (w.dtype == F32 || w.dtype == BF16) return vec2(0);
  uint g = k / w.group;
  if (w.dtype == MXFP4) return vec2(power_of(byte_at(b_scale + g)), 0.0);
  return vec2(half_at(b_scale, g), w.dtype == I4A ? half_at(b_offset, g) : 0.0);
}

#ifdef COOPERATIVE
#include "tiles_matrix.glsl"
#else

const uint kBM = 64, kBN = 64, kHalf = 32;
shared float tile_a[kHalf * (kBM + 1)], tile_b[kHalf * (kBN + 1)];  // [k][row]

// Thread (x, y) of 16 x 16: rows 4 y + i, columns x + 16 j; then by fours through shared memory.
void multiply_tile(uint dtype, Weight w, uint width) {
  uint thread = gl_LocalInvocationIndex, x = thread % 16, y = thread / 16, row = thread / 4, part = thread % 4;
  uint64_t from = a_row(row);
  find_b_row(row);
  float sums[16];
  [[unroll]] for (uint i = 0; i < 16; ++i) sums[i] = 0;
  for (uint k0 = 0; k0 < width; k0 += kHalf) {
    uint k = k0 + 8 * part;
    vec4 low, high, a_low = Float4s(from + 4 * k).at[0], a_high = Float4s(from + 4 * k).at[1];
    eight(dtype, b_data, k / 8, scale_of(w, k), low, high);
    barrier();
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      tile_b[(8 * part + i) * (kBN + 1) + row] = low[i];
      tile_b[(8 * part + 4 + i) * (kBN + 1) + row] = high[i];
      tile_a[(8 * part + i) * (kBM + 1) + row] = a_low[i];
      tile_a[(8 * part + 4 + i) * (kBM + 1) + row] = a_high[i];
    }
    barrier();
    for (uint kk = 0; kk < kHalf; ++kk) {
      float a[4], b[4];
      [[unroll]] for (uint i = 0; i < 4; ++i) {
        a[i] = tile_a[kk * (kBM + 1) + 4 * y + i];
        b[i] = tile_b[kk * (kBN + 1) + x + 16 * i];
      }
      [[unroll]] for (uint i = 0; i < 16; ++i) sums[i] = fma(a[i / 4], b[i % 4], sums[i]);
    }
  }
  // 16 rows of the tile at a time.
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    barrier();
    [[unroll]] for (uint j = 0; j < 4; ++j) tile_a[y * 64 + x + 16 * j] = sums[4 * i + j];
    barrier();
    uint m = thread / 16 * 4 + i, n = thread % 16 * 4, at = thread / 16 * 64;
    if (kPairs) {
      uint c = at + n % 32 / 16 * 32 + n % 16;
      vec4 first = vec4(tile_a[c], tile_a[c + 1], tile_a[c + 2], tile_a[c + 3]);
      if (n < 32) finish(m, n, first, vec4(tile_a[c + 16], tile_a[c + 17], tile_a[c + 18], tile_a[c + 19]));
    } else {
      finish(m, n, vec4(tile_a[at + n], tile_a[at + n + 1], tile_a[at + n + 2], tile_a[at + n + 3]), vec4(0));
    }
  }
}

#endif
