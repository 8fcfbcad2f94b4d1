// Tiles of products: C [kBM, kBN] = A B^T, A of activations, B of weights in any encoding that is readable in pieces.
//
// COOPERATIVE: fp16 factors (tiles_prepare.comp makes A's), matrix instructions of 16x16x16, fp32 sums; eight subgroups of
// 32 lanes. Else fp32 by all threads.
//
// The includer gives:
//   uint64_t a_row(uint m)      where row m of the tile begins
//   void find_b_row(uint n)     sets b_data, b_scale, b_offset: where row n of the tile begins, and its first scale
//   void finish(uint m, uint n, vec4 v, vec4 w)   takes results: columns n .. n + 3 of row m; with kPairs, n counts pairs of
//                               columns, v is from the first and w from the second of each
// Pairs: of every 32 rows of B the first 16 are the first ones of 16 pairs.

const uint kBK = 64;
uint64_t b_data, b_scale, b_offset;

// Quants are put into the mantissa of a float between 1 and 2.
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
  } else {
    eight_of_nibbles(dtype, Words(data + 4 * i).at[0], scale, low, high);
  }
}

// Scale and offset of element k of the row that find_b_row found.
vec2 scale_of(Weight w, uint k) {
  if (w.dtype == F32 || w.dtype == BF16) return vec2(0);
  uint g = k / w.group;
  return vec2(half_at(b_scale, g), w.dtype == I4A ? half_at(b_offset, g) : 0.0);
}

#ifdef COOPERATIVE

layout(constant_id = 10) const uint kBM = 128;  // 32, 64 or 128; with kPairs 64 or 128
const uint kBN = 128, kStride = kBK / 8 + 1;    // in uvec4s, of a row in shared memory
const uint kRowGroups = kBM / 32, kColumns = kBM / 2, kFragments = kColumns / 16;
shared uvec4 tile_a[kBM * kStride], tile_b[kBN * kStride];
#define Sums fcoopmatNV<32, gl_ScopeSubgroup, 16, 16>
#define Factors fcoopmatNV<16, gl_ScopeSubgroup, 16, 16>

// What the next step of 64 elements brings of A and B: asked for while this one is multiplied.
const uint kA = kBM / 32;  // uvec4s of A per thread
uvec4 next_a[kA], next_b[8];
vec2 next_scale;
uint64_t a_from[kA];

void ask_for(uint dtype, Weight w, uint width, uint k0) {
  uint part = gl_LocalInvocationIndex % 8, k = k0 + 32 * (gl_LocalInvocationIndex % 2);
  [[unroll]] for (uint i = 0; i < kA; ++i) {
    next_a[i] = k0 + 8 * part < width ? Word4s(a_from[i] + 2 * k0).at[0] : uvec4(0);
  }
  const uint vectors = dtype == F32 ? 8 : dtype == BF16 ? 4 : dtype == I8 ? 2 : 1;
  uint64_t from = b_data + 16 * vectors * (k / 32);
  [[unroll]] for (uint i = 0; i < vectors; ++i) next_b[i] = k < width ? Word4s(from).at[i] : uvec4(0);
  next_scale = k < width ? scale_of(w, k) : vec2(0);
}

// Elements 8 i .. 8 i + 7 of the 32 that were asked for, in fp16.
uvec4 eight_halves(uint dtype, uint i) {
  vec4 low, high;
  if (dtype == F32) {
    low = uintBitsToFloat(next_b[2 * i]);
    high = uintBitsToFloat(next_b[2 * i + 1]);
  } else if (dtype == BF16) {
    uvec4 h = next_b[i];
    low = uintBitsToFloat(uvec4(h.x << 16, h.x & 0xffff0000u, h.y << 16, h.y & 0xffff0000u));
    high = uintBitsToFloat(uvec4(h.z << 16, h.z & 0xffff0000u, h.w << 16, h.w & 0xffff0000u));
  } else if (dtype == I8) {
    eight_of_bytes(next_b[i / 2][i % 2 * 2], next_b[i / 2][i % 2 * 2 + 1], next_scale, low, high);
  } else {
    eight_of_nibbles(dtype, next_b[0][i], next_scale, low, high);
  }
  return uvec4(packHalf2x16(low.xy), packHalf2x16(low.zw), packHalf2x16(high.xy), packHalf2x16(high.zw));
}

void multiply_tile(uint dtype, Weight w, uint width) {
  uint thread = gl_LocalInvocationIndex, part = thread % 8, b_part = thread % 2;
  [[unroll]] for (uint i = 0; i < kA; ++i) a_from[i] = a_row(thread / 8 + 32 * i) + 16 * part;
  find_b_row(thread / 2);
  ask_for(dtype, w, width, 0);
  Sums sums[2 * kFragments];
  [[unroll]] for (uint i = 0; i < 2 * kFragments; ++i) sums[i] = Sums(0.0);
  uint row0 = gl_SubgroupID % kRowGroups * 32, column0 = gl_SubgroupID / kRowGroups * kColumns;
  for (uint k0 = 0; k0 < width; k0 += kBK) {
    barrier();
    [[unroll]] for (uint i = 0; i < kA; ++i) tile_a[(thread / 8 + 32 * i) * kStride + part] = next_a[i];
    [[unroll]] for (uint i = 0; i < 4; ++i) tile_b[thread / 2 * kStride + 4 * b_part + i] = eight_halves(dtype, i);
    barrier();
    if (k0 + kBK < width) ask_for(dtype, w, width, k0 + kBK);
    [[unroll]] for (uint kk = 0; kk < kBK / 16; ++kk) {
      Factors fa[2];
      [[unroll]] for (uint i = 0; i < 2; ++i) {
        coopMatLoadNV(fa[i], tile_a, (row0 + 16 * i) * kStride + 2 * kk, kStride, false);
      }
      [[unroll]] for (uint j = 0; j < kFragments; ++j) {
        Factors fb;
        coopMatLoadNV(fb, tile_b, (column0 + 16 * j) * kStride + 2 * kk, kStride, true);
        [[unroll]] for (uint i = 0; i < 2; ++i) {
          sums[i * kFragments + j] = coopMatMulAddNV(fa[i], fb, sums[i * kFragments + j]);
        }
      }
    }
  }
  barrier();
  // Results pass through shared memory, 16 x 16 at a time, two of each subgroup.
  uint place = gl_SubgroupID * 128, lane = gl_SubgroupInvocationID;
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    [[unroll]] for (uint j = 0; j < kFragments; j += kPairs ? 2 : 1) {
      coopMatStoreNV(sums[i * kFragments + j], tile_b, place, 4, false);
      if (kPairs) coopMatStoreNV(sums[i * kFragments + j + (kPairs ? 1 : 0)], tile_b, place + 64, 4, false);
      subgroupMemoryBarrierShared();
      subgroupBarrier();
      [[unroll]] for (uint e = lane; e < 64; e += 32) {
        uint m = row0 + 16 * i + e / 4, n = (column0 + 16 * j) / (kPairs ? 2 : 1) + e % 4 * 4;
        finish(m, n, uintBitsToFloat(tile_b[place + e]), kPairs ? uintBitsToFloat(tile_b[place + 64 + e]) : vec4(0));
      }
      subgroupMemoryBarrierShared();
      subgroupBarrier();
    }
  }
}

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
