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

// Stores vector e4 of row m. Neighbouring lanes store neighbouring vectors, four of which share a sum.
void stage(uint m, uint e4, vec4 v) {
  staged[staged_at(m, e4)] = v;
  float sum = (v.x + v.y) + (v.z + v.w);
  sum += subgroupShuffleXor(sum, 1);
  sum += subgroupShuffleXor(sum, 2);
  if ((e4 & 3) == 0) staged_sum[m * kBlocks * 2 + (e4 >> 2)] = sum;
}

float vector_acc[kR * kM];
uvec4 held[kR * kU];      // pieces that were asked for
vec2 held_scale[kR * kU]; // their scales and offsets

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

// Pieces of 16 bytes that share a scale, as a power of two; 31 where a row has one.
uint group_shift(Weight w) {
  return w.groups > 1 ? findLSB(max(w.group / piece_elements(w.dtype), 1u)) : 31;
}

#endif
