// Products of rows of weights with a few rows of activations, in fp32, 16 bytes of a weight at a time.
//
// A workgroup stages kM rows of activations in shared memory. A subgroup takes kR rows of a weight; its lanes walk along
// them, kU pieces of 16 bytes each at a time. Quants are put into the mantissa of a float between 1 and 2 by two
// instructions, and what that adds is taken away by the sum of the activations of each piece.
#ifndef SWITCHYARD_VECTOR_GLSL_
#define SWITCHYARD_VECTOR_GLSL_

layout(constant_id = 10) const uint kM = 1;
layout(constant_id = 11) const uint kR = 2;
layout(constant_id = 12) const uint kU = 2;
layout(constant_id = 13) const uint kBlocks = 64;  // room: blocks of 32 elements in a row
const uint kSlots = 8 * (kBlocks + 1);             // vec4s of a row

// Vector e4 (of 4 elements) of row m lies at kSlots m + (e4 % 8) (kBlocks + 1) + e4 / 8, so that lanes that read the same
// part of neighbouring pieces read neighbouring vectors.
shared vec4 staged[kM * kSlots];
shared float staged_sum[kM * kBlocks * 2];  // of 16 elements each

uint staged_at(uint m, uint e4) { return m * kSlots + (e4 & 7) * (kBlocks + 1) + (e4 >> 3); }

// Stores 16 elements: number i of row m.
void stage(uint m, uint i, vec4 v[4]) {
  float sum = 0;
  [[unroll]] for (uint j = 0; j < 4; ++j) {
    staged[staged_at(m, 4 * i + j)] = v[j];
    sum += (v[j].x + v[j].y) + (v[j].z + v[j].w);
  }
  staged_sum[m * kBlocks * 2 + i] = sum;
}

float vector_acc[kR * kM];

// Elements of one piece of 16 bytes.
uint piece_elements(uint dtype) { return dtype == I8 ? 16 : dtype == BF16 ? 8 : dtype == F32 ? 4 : 32; }

// Vector j of a piece. Quants come as 1 + q / 16 (4 bits) or 1 + (q + 128) / 256 (8 bits).
vec4 unpack(uint dtype, uvec4 w, uint j) {
  if (dtype == F32) return uintBitsToFloat(w);
  if (dtype == BF16) {
    uvec2 h = j == 0 ? w.xy : w.zw;
    return uintBitsToFloat(uvec4(h.x << 16, h.x & 0xffff0000u, h.y << 16, h.y & 0xffff0000u));
  }
  if (dtype == I8) {
    uint q = w[j] ^ 0x80808080u;
    return uintBitsToFloat((uvec4(q << 15, q << 7, q >> 1, q >> 9) & 0x7f8000u) | 0x3f800000u);
  }
  uint q = w[j >> 1];
  uvec4 at = (j & 1) == 0 ? uvec4(q << 19, q << 15, q << 11, q << 7) : uvec4(q << 3, q >> 1, q >> 5, q >> 9);
  return uintBitsToFloat((at & 0x780000u) | 0x3f800000u);
}

// Adds the products of rows row[0 .. kR - 1] of w with all staged rows to vector_acc: this lane's share.
// `dtype` is that of w, known when the shader is compiled.
void multiply(uint dtype, Weight w, uint64_t row[kR]) {
  const uint elements = piece_elements(dtype), vectors = elements / 4;
  const uint pieces = w.width / elements;
  const uint per_group = max(w.group / elements, 1u);  // pieces
  const uint shift = w.groups > 1 ? findLSB(per_group) : 31;
  for (uint first = gl_SubgroupInvocationID; first < pieces; first += gl_SubgroupSize * kU) {
    uvec4 held[kR * kU];
    vec2 scale[kR * kU];  // and offset
    [[unroll]] for (uint u = 0; u < kU; ++u) {
      uint p = first + u * gl_SubgroupSize;
      bool there = p < pieces;
      p = there ? p : first;
      [[unroll]] for (uint r = 0; r < kR; ++r) {
        held[u * kR + r] = Word4s(w.data + row[r] * w.row_bytes).at[p];
        scale[u * kR + r] = vec2(there ? 1.0 : 0.0, 0.0);
        if (dtype == F32 || dtype == BF16) continue;
        uint64_t g = row[r] * w.groups + (p >> shift);
        if (there) scale[u * kR + r].x = half_at(w.scales, g);
        if (there && dtype == I4A) scale[u * kR + r].y = half_at(w.offsets, g);
      }
    }
    [[unroll]] for (uint u = 0; u < kU; ++u) {
      uint p = first + u * gl_SubgroupSize;
      p = p < pieces ? p : first;
      float part[kR * kM];
      [[unroll]] for (uint i = 0; i < kR * kM; ++i) part[i] = 0;
      [[unroll]] for (uint j = 0; j < vectors; ++j) {
        vec4 a[kM];
        [[unroll]] for (uint m = 0; m < kM; ++m) a[m] = staged[staged_at(m, p * vectors + j)];
        [[unroll]] for (uint r = 0; r < kR; ++r) {
          vec4 v = unpack(dtype, held[u * kR + r], j);
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
        [[unroll]] for (uint r = 0; r < kR; ++r) {
          vec2 s = scale[u * kR + r];
          float total = vector_acc[r * kM + m], it = part[r * kM + m];
          if (dtype == F32 || dtype == BF16) total = fma(it, s.x, total);
          if (dtype == I8) total = fma(fma(-1.5, sum, it), 256 * s.x, total);
          if (dtype == I4) total = fma(fma(-1.5, sum, it), 16 * s.x, total);
          if (dtype == I4A) total = fma(it - sum, 16 * s.x, fma(s.y, sum, total));
          vector_acc[r * kM + m] = total;
        }
      }
    }
  }
}

#endif
