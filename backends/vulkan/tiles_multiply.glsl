// The products of one tile (tiles.glsl) for weights of encoding DTYPE, VECTORS times 16 bytes per 32 elements. Defines ASK_FOR,
// EIGHT and MULTIPLY_TILE under the names that the includer gives.
#ifdef COOPERATIVE

void ASK_FOR(Weight w, uint width, uint k0) {
  uint part = gl_LocalInvocationIndex % 8, k = k0 + 32 * (gl_LocalInvocationIndex % 2);
  [[unroll]] for (uint i = 0; i < kA; ++i) {
    next_a[i] = k0 + 8 * part < width ? Word4s(a_from[i] + 2 * k0).at[0] : uvec4(0);
  }
  uint64_t from = b_data + 16 * VECTORS * (k / 32);
  [[unroll]] for (uint i = 0; i < VECTORS; ++i) next_b[i] = k < width ? Word4s(from).at[i] : uvec4(0);
  next_scale = k < width ? scale_of(w, k) : vec2(0);
}

// Elements 8 i .. 8 i + 7 of the 32 that were asked for, in fp16.
uvec4 EIGHT(uint i) {
  vec4 low, high;
  if (DTYPE == F32) {
    low = uintBitsToFloat(next_b[2 * i]);
    high = uintBitsToFloat(next_b[2 * i + 1]);
  } else if (DTYPE == BF16) {
    uvec4 h = next_b[i];
    low = uintBitsToFloat(uvec4(h.x << 16, h.x & 0xffff0000u, h.y << 16, h.y & 0xffff0000u));
    high = uintBitsToFloat(uvec4(h.z << 16, h.z & 0xffff0000u, h.w << 16, h.w & 0xffff0000u));
  } else if (DTYPE == I8) {
    eight_of_bytes(next_b[i / 2][i % 2 * 2], next_b[i / 2][i % 2 * 2 + 1], next_scale, low, high);
  } else {
    eight_of_nibbles(DTYPE, next_b[0][i], next_scale, low, high);
  }
  return uvec4(packHalf2x16(low.xy), packHalf2x16(low.zw), packHalf2x16(high.xy), packHalf2x16(high.zw));
}

void MULTIPLY_TILE(Weight w, uint width) {
  uint thread = gl_LocalInvocationIndex, part = thread % 8, b_part = thread % 2;
  [[unroll]] for (uint i = 0; i < kA; ++i) a_from[i] = a_row(thread / 8 + 32 * i) + 16 * part;
  find_b_row(thread / 2);
  ASK_FOR(w, width, 0);
  Sums sums[2 * kFragments];
  [[unroll]] for (uint i = 0; i < 2 * kFragments; ++i) sums[i] = Sums(0.0);
  uint row0 = gl_SubgroupID % kRowGroups * 32, column0 = gl_SubgroupID / kRowGroups * kColumns;
  for (uint k0 = 0; k0 < width; k0 += kBK) {
    barrier();
    [[unroll]] for (uint i = 0; i < kA; ++i) tile_a[(thread / 8 + 32 * i) * kStride + part] = next_a[i];
    [[unroll]] for (uint i = 0; i < 4; ++i) tile_b[thread / 2 * kStride + 4 * b_part + i] = EIGHT(i);
    barrier();
    if (k0 + kBK < width) ASK_FOR(w, width, k0 + kBK);
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

// Eight elements of a weight's row from element 8 i on: words of quants, then the floats.
void EIGHT(uint64_t data, uint i, vec2 scale, out vec4 low, out vec4 high) {
  if (DTYPE == F32) {
    low = Float4s(data + 32 * i).at[0];
    high = Float4s(data + 32 * i).at[1];
  } else if (DTYPE == BF16) {
    uvec4 h = Word4s(data + 16 * i).at[0];
    low = uintBitsToFloat(uvec4(h.x << 16, h.x & 0xffff0000u, h.y << 16, h.y & 0xffff0000u));
    high = uintBitsToFloat(uvec4(h.z << 16, h.z & 0xffff0000u, h.w << 16, h.w & 0xffff0000u));
  } else if (DTYPE == I8) {
    eight_of_bytes(Words(data + 8 * i).at[0], Words(data + 8 * i).at[1], scale, low, high);
  } else {
    eight_of_nibbles(DTYPE, Words(data + 4 * i).at[0], scale, low, high);
  }
}

// Thread (x, y) of 16 x 16: rows 4 y + i, columns x + 16 j; then by fours through shared memory.
void MULTIPLY_TILE(Weight w, uint width) {
  uint thread = gl_LocalInvocationIndex, x = thread % 16, y = thread / 16, row = thread / 4, part = thread % 4;
  uint64_t from = a_row(row);
  find_b_row(row);
  float sums[16];
  [[unroll]] for (uint i = 0; i < 16; ++i) sums[i] = 0;
  for (uint k0 = 0; k0 < width; k0 += kHalf) {
    uint k = k0 + 8 * part;
    vec4 low, high, a_low = Float4s(from + 4 * k).at[0], a_high = Float4s(from + 4 * k).at[1];
    EIGHT(b_data, k / 8, scale_of(w, k), low, high);
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
#undef DTYPE
#undef VECTORS
#undef ASK_FOR
#undef EIGHT
#undef MULTIPLY_TILE
