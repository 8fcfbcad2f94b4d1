// The inner loop of the vector products (vector.glsl), for includers that say where pieces of their rows lie:
//   DTYPE, VECTORS         the encoding, and how many times 4 elements are in 16 bytes: bounds of loops that are unrolled
//   MULTIPLY, FETCH        the names of the functions
//   HELD, HELD_SCALE       where pieces wait that were asked for (vector.glsl: held, held_scale)
//   PIECE_DATA(r, p)       the address of piece p of row r of the weight
//   PIECE_SCALE(r, p)      the address of its fp16 scale
//   PIECE_OFFSET(r, p)     and of its offset (i4a)
// Included once for each encoding.

// Asks for the pieces of kR rows from piece `first` on.
void FETCH(uint pieces, uint first) {
  [[unroll]] for (uint u = 0; u < kU; ++u) {
    uint p = first + u * gl_SubgroupSize;
    bool there = p < pieces;
    [[unroll]] for (uint r = 0; r < kR; ++r) {
      HELD[u * kR + r] = uvec4(0);
      if (there) HELD[u * kR + r] = Word4s(PIECE_DATA(r, p)).at[0];
      HELD_SCALE[u * kR + r] = vec2(there ? 1.0 : 0.0, 0.0);
      if (DTYPE == F32 || DTYPE == BF16) continue;
      if (there) HELD_SCALE[u * kR + r].x = half_at(PIECE_SCALE(r, p), 0);
      if (there && DTYPE == I4A) HELD_SCALE[u * kR + r].y = half_at(PIECE_OFFSET(r, p), 0);
    }
  }
}

// Adds the products of kR rows of `pieces` pieces with all staged rows, from element `first_element` on, to vector_acc:
// this lane's share. The first pieces were fetched (FETCH, of gl_SubgroupInvocationID).
void MULTIPLY(uint pieces, uint first_element) {
  const uint first_piece = first_element / (4 * VECTORS);
  for (uint first = gl_SubgroupInvocationID;;) {
    [[unroll]] for (uint u = 0; u < kU; ++u) {
      uint p = first + u * gl_SubgroupSize;
      if (p - gl_SubgroupInvocationID >= pieces) continue;  // for all lanes
      p = first_piece + (p < pieces ? p : 0);
#ifdef DOT8
      if (DTYPE != F32 && DTYPE != BF16) {
        [[unroll]] for (uint m = 0; m < kM; ++m) {
          vec2 a = dot_scale[m * kBlocks + (DTYPE == I8 ? p >> 1 : p)];
          [[unroll]] for (uint r = 0; r < kR; ++r) {
            float it = float(dot_piece(DTYPE, HELD[u * kR + r], m, p));
            vec2 s = HELD_SCALE[u * kR + r];
            float offset = DTYPE == I8 ? 0.0 : DTYPE == I4 ? -8.0 * s.x : s.y;
            vector_acc[r * kM + m] = fma(a.x, fma(s.x, it, offset * a.y), vector_acc[r * kM + m]);
          }
        }
        continue;
      }
#endif
      float part[kR * kM];
      [[unroll]] for (uint i = 0; i < kR * kM; ++i) part[i] = 0;
      [[unroll]] for (uint j = 0; j < VECTORS; ++j) {
        vec4 a[kM];
        [[unroll]] for (uint m = 0; m < kM; ++m) a[m] = staged[staged_at(m, p * VECTORS + j)];
        [[unroll]] for (uint r = 0; r < kR; ++r) {
          vec4 v = unpack(DTYPE, HELD[u * kR + r], j);
          [[unroll]] for (uint m = 0; m < kM; ++m) {
            float s = part[r * kM + m];
            s = fma(v.x, a[m].x, s);
            s = fma(v.y, a[m].y, s);
            s = fma(v.z, a[m].z, s);
            part[r * kM + m] = fma(v.w, a[m].w, s);
          }
        }
      }
      [[unroll]] for (uint m = 0; m < kM; ++m) {
        float sum = 0;
        if (DTYPE == I8) sum = staged_sum[m * kBlocks * 2 + p];
        if (DTYPE == I4 || DTYPE == I4A) {
          sum = staged_sum[m * kBlocks * 2 + 2 * p] + staged_sum[m * kBlocks * 2 + 2 * p + 1];
        }
        [[unroll]] for (uint r = 0; r < kR; ++r) {
          vec2 s = HELD_SCALE[u * kR + r];
          float total = vector_acc[r * kM + m], it = part[r * kM + m];
          if (DTYPE == F32 || DTYPE == BF16) total = fma(it, s.x, total);
          if (DTYPE == I8) total = fma(fma(-1.5, sum, it), 256 * s.x, total);
          if (DTYPE == I4) total = fma(fma(-1.5, sum, it), 16 * s.x, total);
          if (DTYPE == I4A) total = fma(it - sum, 16 * s.x, fma(s.y, sum, total));
          vector_acc[r * kM + m] = total;
        }
      }
    }
    first += gl_SubgroupSize * kU;
    if (first - gl_SubgroupInvocationID >= pieces) return;
    FETCH(pieces, first);
  }
}
#undef DTYPE
#undef VECTORS
#undef FETCH
#undef MULTIPLY
