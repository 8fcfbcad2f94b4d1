// SPDX-License-Identifier: Apache-2.0
// The inner loop of the vector products (vector.glsl). The including shader defines where pieces of its rows lie:
//   MULTIPLY, FETCH        the names of the functions
//   PIECE_DATA(r, p)       the address of piece p of row r of the weight
//   PIECE_SCALE(r, p)      the address of its scale; `dtype` is known there
//   PIECE_OFFSET(r, p)     the address of its offset (i4a)
//
// and, if they are not kR, kU and 0, how many rows and pieces of each there are and where they are in `held`:
//   ROWS, AT_ONCE, HELD_AT
//
// Include it once for each set of names.
#ifndef ROWS
#define ROWS kR
#define AT_ONCE kU
#define HELD_AT 0
#endif

// Requests the pieces of ROWS rows from piece `first` on. `dtype` is known when the shader is compiled.
void FETCH(uint dtype, uint pieces, uint first) {
  held_upper = MORE_HELD == 0 ? 0 : held_upper & ~(((1u << (ROWS * AT_ONCE)) - 1) * 0x10001u << HELD_AT);
  [[unroll]] for (uint u = 0; u < AT_ONCE; ++u) {
    uint p = first + u * gl_SubgroupSize;
    p = p < pieces ? p : 0;
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      const uint at = HELD_AT + u * ROWS + r;
      held[at] = Word4s(PIECE_DATA(r, p)).at[0];
      if (dtype == F32 || dtype == BF16) continue;
      uint64_t scale = PIECE_SCALE(r, p);
      held_scale[at] = Words(scale & ~uint64_t(3)).at[0];
      held_upper |= (uint(scale) >> 1 & 1) << at;
      if (dtype == MXFP4) held_upper |= (uint(scale) & 1) << (at + 16);
      if (dtype != I4A) continue;
      uint64_t offset = PIECE_OFFSET(r, p);
      held_offset[at] = Words(offset & ~uint64_t(3)).at[0];
      held_upper |= (uint(offset) >> 1 & 1) << (at + 16);
    }
  }
}

// Adds the products of ROWS rows of `pieces` pieces with all staged rows, from element `first_element` on, to vector_acc:
// this lane's share. The first pieces were fetched (FETCH, of gl_SubgroupInvocationID).
void MULTIPLY(uint dtype, uint pieces, uint first_element) {
  const uint elements = piece_elements(dtype), vectors = elements / 4;
  const uint first_piece = first_element / elements;
  for (uint first = gl_SubgroupInvocationID;;) {
    [[unroll]] for (uint u = 0; u < AT_ONCE; ++u) {
      uint p = first + u * gl_SubgroupSize;
      bool there = p < pieces;
      p = first_piece + (there ? p : 0);
#ifdef DOT8
      if (dtype != F32 && dtype != BF16 && dtype != MXFP4) {
        [[unroll]] for (uint m = 0; m < kM; ++m) {
          vec2 a = dot_scale[m * kBlocks + (dtype == I8 ? p >> 1 : p)];
          [[unroll]] for (uint r = 0; r < ROWS; ++r) {
            float it = float(dot_piece(dtype, held[HELD_AT + u * ROWS + r], m, p));
            vec2 s = held_pair(dtype, HELD_AT + u * ROWS + r, there);
            float offset = dtype == I8 ? 0.0 : dtype == I4 ? -8.0 * s.x : s.y;
            vector_acc[r * kM + m] = fma(a.x, fma(s.x, it, offset * a.y), vector_acc[r * kM + m]);
          }
        }
        continue;
      }
#endif
      float part[ROWS * kM];
      [[unroll]] for (uint i = 0; i < ROWS * kM; ++i) part[i] = 0;
      [[unroll]] for (uint j = 0; j < vectors; ++j) {
        vec4 a[kM];
        [[unroll]] for (uint m = 0; m < kM; ++m) a[m] = staged[staged_at(m, p * vectors + j)];
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
          vec4 v = unpack(dtype, held[HELD_AT + u * ROWS + r], j);
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
        if (dtype == I8) sum = staged_sum[m * kBlocks * 2 + p];
        if (dtype == I4 || dtype == I4A) {
          sum = staged_sum[m * kBlocks * 2 + 2 * p] + staged_sum[m * kBlocks * 2 + 2 * p + 1];
        }
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
          vec2 s = held_pair(dtype, HELD_AT + u * ROWS + r, there);
          float total = vector_acc[r * kM + m], it = part[r * kM + m];
          if (dtype == F32 || dtype == BF16 || dtype == MXFP4) total = fma(it, s.x, total);
          if (dtype == I8) total = fma(fma(-1.5, sum, it), 256 * s.x, total);
          if (dtype == I4) total = fma(fma(-1.5, sum, it), 16 * s.x, total);
          if (dtype == I4A) total = fma(it - sum, 16 * s.x, fma(s.y, sum, total));
          vector_acc[r * kM + m] = total;
        }
      }
    }
    first += gl_SubgroupSize * AT_ONCE;
    if (first - gl_SubgroupInvocationID >= pieces) return;
    FETCH(dtype, pieces, first);
  }
}
