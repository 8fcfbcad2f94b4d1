// SPDX-License-Identifier: Apache-2.0
// Elements of weights in their canonical encodings (weights.h), for any shape.
#ifndef SWITCHYARD_WEIGHTS_GLSL_
#define SWITCHYARD_WEIGHTS_GLSL_

// `form`, as in operands.h: dtype | group << 8; a group of 0 is the whole row.
uint form_dtype(uint form) { return form & 0xffu; }
uint form_group(uint form, uint width) { return form >> 8 == 0 ? width : form >> 8; }

struct Weight {
  uint64_t data, scales, offsets;
  uint width, row_bytes, groups, group, dtype;
};

// Bytes of a scale: fp16, or the exponent of a power of two.
uint scale_bytes(uint dtype) { return dtype == MXFP4 ? 1 : 2; }

// Planes of a weight of `rows` rows, from its address.
Weight weight_of(uint64_t data, uint64_t rows, uint width, uint form) {
  Weight w;
  w.data = data;
  w.scales = w.offsets = data;
  w.width = width;
  w.dtype = form_dtype(form);
  w.group = form_group(form, width);
  w.groups = (width + w.group - 1) / w.group;
  if (w.dtype == F32 || w.dtype == BF16) {
    w.row_bytes = width * (w.dtype == F32 ? 4 : 2);
    return w;
  }
  w.row_bytes = w.groups * (w.dtype == I8 ? w.group : (w.group + 1) / 2);
  uint64_t quants = (rows * w.row_bytes + 63) & ~uint64_t(63);
  w.scales = data + quants;
  w.offsets = w.scales + ((rows * w.groups * scale_bytes(w.dtype) + 63) & ~uint64_t(63));
  return w;
}

// 16 and 8 bits at a byte address.
uint half_word_at(uint64_t a) { return (Words(a & ~uint64_t(3)).at[0] >> (uint(a & 2) * 8)) & 0xffffu; }
uint byte_at(uint64_t a) { return (Words(a & ~uint64_t(3)).at[0] >> (uint(a & 3) * 8)) & 0xffu; }
// The scale of an exponent; the numbers of four elements of MXFP4.
float power_of(uint e) { return uintBitsToFloat(e == 255 ? 0x7fc00000u : e == 0 ? 0x00400000u : e << 23); }
vec4 numbers_of(uvec4 q) {
  vec4 size = vec4((uvec4(0xc8643210u) >> ((q & 7) << 2)) & 15) * 0.5;
  return uintBitsToFloat(floatBitsToUint(size) | (q & 8) << 28);
}
float half_at(uint64_t plane, uint64_t i) { return unpackHalf2x16(half_word_at(plane + 2 * i)).x; }

// Element i of a plain array.
float plain_at(uint64_t data, uint dtype, uint i) {
  return dtype == F32 ? Floats(data).at[i] : bf16_bits(half_word_at(data + 2 * uint64_t(i)));
}

// Four elements of a plain array, from their 16 or 8 bytes.
vec4 four_of_plain(uvec4 w, uint dtype) {
  return uintBitsToFloat(dtype == F32 ? w : uvec4(w.x << 16, w.x & 0xffff0000u, w.y << 16, w.y & 0xffff0000u));
}

// Elements 4 i .. 4 i + 3 of a plain array that begins on a multiple of 16 bytes.
vec4 plain_four(uint64_t data, uint dtype, uint i) {
  return four_of_plain(dtype == F32 ? Word4s(data).at[i] : uvec4(Word2s(data).at[i], 0, 0), dtype);
}

float weight_at(Weight w, uint64_t row, uint k) {
  uint64_t data = w.data + row * w.row_bytes;
  if (w.dtype == F32 || w.dtype == BF16) return plain_at(data, w.dtype, k);
  uint g = k / w.group, i = k % w.group;
  uint64_t at = row * w.groups + g;
  float scale = w.dtype == MXFP4 ? power_of(byte_at(w.scales + at)) : half_at(w.scales, at);
  if (w.dtype == I8) return float(bitfieldExtract(int(byte_at(data + g * w.group + i)), 0, 8)) * scale;
  int q = int(byte_at(data + g * ((w.group + 1) / 2) + i / 2) >> (4 * (i & 1))) & 15;
  if (w.dtype == MXFP4) return numbers_of(uvec4(q)).x * scale;
  if (w.dtype == I4) return float(q - 8) * scale;
  return float(q) * scale + half_at(w.offsets, at);
}

#endif
