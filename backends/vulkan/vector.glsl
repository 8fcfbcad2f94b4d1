// SPDX-License-Identifier: Apache-2.0
// Products of rows of weights with a few rows of activations, 16 bytes of a weight at a time.
//
// A workgroup stages kM rows of activations in shared memory. A subgroup has kR rows of a weight; its lanes walk along
// them, kU pieces of 16 bytes each at a time. Two instructions unpack a quant into the mantissa of a float between 1
// and 2; the constant that this adds is subtracted by means of the sum of each piece's activations.
#ifndef SWITCHYARD_VECTOR_GLSL_
#define SWITCHYARD_VECTOR_GLSL_

layout(constant_id = 10) const uint kM = 1;
layout(constant_id = 11) const uint kR = 2;
layout(constant_id = 12) const uint kU = 2;
layout(constant_id = 13) const uint kBlocks = 64;  // room: blocks of 32 elements in a row
const uint kSlots = 8 * (kBlocks + 1);             // vec4s of a row

#ifdef DOT8
#extension GL_EXT_spirv_intrinsics : require
layout(constant_id = 14) const uint kForms = 7;  // of the activations: 1 for quants of 4 bits, 2 for 8 bits, 4 for plain weights
const uint kFloatRows = (kForms & 4) != 0 ? kM : 0, kDotRows = (kForms & 3) != 0 ? kM : 0;
// The sum of the products of four signed bytes (OpSDot of SPV_KHR_integer_dot_product).
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450)
int dot_bytes(int a, int b, spirv_literal int format);
int dot8(uint a, uint b) { return dot_bytes(int(a), int(b), 0); }

// Per 32 elements four times 16 bytes, kBlocks apart: high bytes of the first 16 and of the others, low bytes likewise. For 4-bit
// quants each 8 elements come as the even ones, then the odd ones.
shared uvec4 dot_nibbles[kDotRows * (kForms & 1) * 4 * kBlocks + 1];
shared uvec4 dot_whole[kDotRows * (kForms >> 1 & 1) * 4 * kBlocks + 1];
shared vec2 dot_scale[kDotRows * kBlocks + 1];  // scale, and the integers' sum

// Four elements as integers, and in `scale` the factor that restores them, the same for 8 neighbouring lanes.
ivec4 as_integers(vec4 v, out float scale) {
  float most = max(max(abs(v.x), abs(v.y)), max(abs(v.z), abs(v.w)));
  [[unroll]] for (uint x = 1; x < 8; x *= 2) most = max(most, subgroupShuffleXor(most, x));
  scale = max(most * (1.0 / 32639.0), 1e-37);
  return ivec4(roundEven(v * (1.0 / scale)));
}
uint pack_bytes(ivec4 q) { return (q.x & 255) | (q.y & 255) << 8 | (q.z & 255) << 16 | (q.w & 255) << 24; }
// The even elements of eight on the first lane of two, the odd ones on the second.
uint pack_nibble_order(ivec4 q) {
  bool second = (gl_SubgroupInvocationID & 1) != 0;
  uint even = (q.x & 255) | (q.z & 255) << 8, odd = (q.y & 255) | (q.w & 255) << 8;
  uint other = subgroupShuffleXor(second ? even : odd, 1);
  return second ? other | odd << 16 : even | other << 16;
}
void stage_integers(uint m, uint e4, vec4 v, float factor) {
  float scale;
  ivec4 q = as_integers(v, scale), high = (q + 128) >> 8, low = q - high * 256;
  int sum = (q.x + q.y) + (q.z + q.w);
  [[unroll]] for (uint x = 1; x < 8; x *= 2) sum += subgroupShuffleXor(sum, x);
  uint chunk = e4 >> 3, part = e4 & 7, at = m * 4 * kBlocks + (part >> 2) * kBlocks + chunk;
  if ((kForms & 1) != 0) {
    dot_nibbles[at][part & 3] = pack_nibble_order(high);
    dot_nibbles[at + 2 * kBlocks][part & 3] = pack_nibble_order(low);
  }
  if ((kForms & 2) != 0) {
    dot_whole[at][part & 3] = pack_bytes(high);
    dot_whole[at + 2 * kBlocks][part & 3] = pack_bytes(low);
  }
  if (part == 0) dot_scale[m * kBlocks + chunk] = vec2(scale * factor, float(sum));
}

// The integer product of a piece with the activations of row m.
int dot_piece(uint dtype, uvec4 w, uint m, uint p) {
  int high = 0, low = 0;
  if (dtype == I8) {
    uint at = m * 4 * kBlocks + (p & 1) * kBlocks + (p >> 1);
    uvec4 h = dot_whole[at], l = dot_whole[at + 2 * kBlocks];
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      high += dot8(w[j], h[j]);
      low += dot8(w[j], l[j]);
    }
  } else {
    [[unroll]] for (uint half_piece = 0; half_piece < 2; ++half_piece) {
      uint at = m * 4 * kBlocks + half_piece * kBlocks + p;
      uvec4 h = dot_nibbles[at], l = dot_nibbles[at + 2 * kBlocks];
      [[unroll]] for (uint j = 0; j < 2; ++j) {
        uint q = w[2 * half_piece + j], even = q & 0x0f0f0f0fu, odd = q >> 4 & 0x0f0f0f0fu;
        high += dot8(even, h[2 * j]) + dot8(odd, h[2 * j + 1]);
        low += dot8(even, l[2 * j]) + dot8(odd, l[2 * j + 1]);
      }
    }
  }
  return high * 256 + low;
}
#else
const uint kFloatRows = kM;
#endif

// Vector e4 (of 4 elements) of row m lies at kSlots m + (e4 % 8) (kBlocks + 1) + e4 / 8, so that lanes that read the same
// part of neighbouring pieces read neighbouring vectors.
shared vec4 staged[kFloatRows * kSlots + 1];
shared float staged_sum[kFloatRows * kBlocks * 2 + 1];  // of 16 elements each

uint staged_at(uint m, uint e4) { return m * kSlots + (e4 & 7) * (kBlocks + 1) + (e4 >> 3); }

// Stores vector e4 of row m; its products are multiplied by `factor`. Neighbouring lanes store neighbouring vectors.
void stage(uint m, uint e4, vec4 v, float factor) {
#ifdef DOT8
  if ((kForms & 3) != 0) stage_integers(m, e4, v, factor);
  if ((kForms & 4) != 0) staged[staged_at(m, e4)] = v * factor;
#else
  v *= factor;
  staged[staged_at(m, e4)] = v;
  float sum = (v.x + v.y) + (v.z + v.w);
  sum += subgroupShuffleXor(sum, 1);
  sum += subgroupShuffleXor(sum, 2);
  if ((e4 & 3) == 0) staged_sum[m * kBlocks * 2 + (e4 >> 2)] = sum;
#endif
}

float vector_acc[kR * kM];
#ifndef MORE_HELD
#define MORE_HELD 0
#endif
const uint kHeldPieces = kR * kU + MORE_HELD;
uvec4 held[kHeldPieces];  // pieces that were requested
uint held_scale[kHeldPieces], held_offset[kHeldPieces];  // words with their scales and offsets
// Bit u kR + r: the scale is in the upper half of its word. 16 bits on, the same of the offset; or for MXFP4, whether
// the scale is in the upper byte of its half.
uint held_upper = 0;

// Elements of one piece of 16 bytes.
uint piece_elements(uint dtype) { return dtype == I8 ? 16 : dtype == BF16 ? 8 : dtype == F32 ? 4 : 32; }

// Vector j of a piece. Quants of integers come as 1 + q / 16 (4 bits) or 1 + (q + 128) / 256 (8 bits).
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
  if (dtype == MXFP4) return numbers_of((uvec4(q, q >> 4, q >> 8, q >> 12) >> (16 * (j & 1))) & 15);
  uvec4 at = (j & 1) == 0 ? uvec4(q << 19, q << 15, q << 11, q << 7) : uvec4(q << 3, q >> 1, q >> 5, q >> 9);
  return uintBitsToFloat((at & 0x780000u) | 0x3f800000u);
}

// Scale and offset of the data held at `at`. Words are converted here and not when they are requested, since a
// conversion waits for its load.
vec2 held_pair(uint dtype, uint at, bool there) {
  if (dtype == F32 || dtype == BF16) return vec2(there ? 1.0 : 0.0, 0.0);
  if (dtype == MXFP4) {
    uint word = held_scale[at] >> (16 * (held_upper >> at & 1) + 8 * (held_upper >> at >> 16 & 1));
    return vec2(there ? power_of(word & 255) : 0.0, 0.0);
  }
  float scale = unpackHalf2x16((held_upper >> at & 1) != 0 ? held_scale[at] >> 16 : held_scale[at]).x;
  float offset = 0;
  if (dtype == I4A) offset = unpackHalf2x16((held_upper >> at >> 16 & 1) != 0 ? held_offset[at] >> 16 : held_offset[at]).x;
  return there ? vec2(scale, offset) : vec2(0);
}

// Pieces of 16 bytes that share a scale, as a power of two; 31 where a row has one.
uint group_shift(Weight w) {
  return w.groups > 1 ? findLSB(max(w.group / piece_elements(w.dtype), 1u)) : 31;
}

#endif
