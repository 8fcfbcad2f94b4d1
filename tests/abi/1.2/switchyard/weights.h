// SPDX-License-Identifier: Apache-2.0
/* Canonical encodings of weights: how a tensor's bytes are laid out in a program file and handed to a backend's packer.
 *
 * A tensor is [.., out, in]; its leading dims count as more rows. Per row, the `in` elements are cut into groups of
 * `group` (0: the whole row); the last group may be short. A quantized tensor has three planes, each starting at a
 * multiple of 64 bytes of the segment:
 *   quants   [rows, groups, bytes of a full group]; a short last group is stored padded
 *   scales   fp16 [rows, groups]; SWY_MXFP4: SWY_E8M0 [rows, groups]
 *   offsets  fp16 [rows, groups], SWY_I4A only
 * Groups of SWY_MXFP4 have 32 elements.
 * In byte j of a 4-bit group the low nibble is element 2j and the high nibble element 2j + 1. Padding dequantizes to a
 * finite value and is never read as a weight. SWY_F32 and SWY_BF16 are plain row-major arrays.
 *
 * An SWY_ENCODED tensor has the same planes. Element i of a group takes the bits [i * bits, (i + 1) * bits) of its
 * quants, the lowest bit of byte 0 first; a full group takes (group * bits + 7) / 8 bytes. Scales and offsets have the
 * encoding's scale_dtype.
 */
#ifndef SWITCHYARD_WEIGHTS_H_
#define SWITCHYARD_WEIGHTS_H_

#include <string.h>

#include "switchyard/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline float swy_bf16_to_f32(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

/* Rounds to nearest even; a NaN stays a NaN. */
static inline uint16_t swy_f32_to_bf16(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40u);
  return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static inline float swy_f16_to_f32(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 31u;
  uint32_t mantissa = h & 0x3ffu;
  uint32_t u;
  float f;
  if (exponent == 31u) {
    u = sign | 0x7f800000u | (mantissa << 13);
  } else if (exponent != 0) {
    u = sign | ((exponent + 112u) << 23) | (mantissa << 13);
  } else { /* zero or subnormal: mantissa * 2^-24 is exact in fp32 */
    f = (float)mantissa * 5.9604644775390625e-8f;
    memcpy(&u, &f, 4);
    u |= sign;
  }
  memcpy(&f, &u, 4);
  return f;
}

/* A scale byte of SWY_F8_E4M3; a NaN for 0x7f and 0xff. */
static inline float swy_f8_e4m3_to_f32(uint8_t b) {
  const uint32_t sign = (uint32_t)(b & 0x80u) << 24, exponent = (b >> 3) & 15u, mantissa = b & 7u;
  uint32_t u;
  float f;
  if ((b & 0x7fu) == 0x7fu) {
    u = sign | 0x7fc00000u;
  } else if (exponent != 0) {
    u = sign | ((exponent + 120u) << 23) | (mantissa << 20);
  } else { /* mantissa * 2^-9 */
    f = (float)mantissa * 0.001953125f;
    memcpy(&u, &f, 4);
    u |= sign;
  }
  memcpy(&f, &u, 4);
  return f;
}

/* A scale byte of SWY_E8M0: 2^(b - 127); a NaN for 255. */
static inline float swy_e8m0_to_f32(uint8_t b) {
  const uint32_t u = b == 255u ? 0x7fc00000u : b == 0u ? 0x00400000u : (uint32_t)b << 23;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

/* An element of SWY_MXFP4, 0..15, before its scale: a sign, 2 bits of exponent, 1 of fraction. */
static inline float swy_e2m1_to_f32(uint32_t q) {
  static const float values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                   -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  return values[q & 15u];
}

/* Bytes of a scale; 0: scales do not have this type. */
static inline uint32_t swy_scale_bytes(swy_dtype dtype) {
  if (dtype == SWY_F32) return 4;
  if (dtype == SWY_F16 || dtype == SWY_BF16) return 2;
  return dtype == SWY_F8_E4M3 || dtype == SWY_E8M0 ? 1 : 0;
}

static inline float swy_scale_to_f32(swy_dtype dtype, const void* at) {
  uint16_t h;
  float f;
  if (dtype == SWY_F8_E4M3) return swy_f8_e4m3_to_f32(*(const uint8_t*)at);
  if (dtype == SWY_E8M0) return swy_e8m0_to_f32(*(const uint8_t*)at);
  if (dtype == SWY_F32) {
    memcpy(&f, at, 4);
    return f;
  }
  memcpy(&h, at, 2);
  return dtype == SWY_BF16 ? swy_bf16_to_f32(h) : swy_f16_to_f32(h);
}

/* NULL, or what is wrong with an encoding, in words for the end of a sentence. Looks at no code before it knows that
 * there are 2^bits. */
static inline const char* swy_encoding_flaw(const swy_encoding* e) {
  if (!swy_is_name(e->name)) return "its name is not vendor.name/revision in at most 63 of [a-z0-9._-]";
  if (e->bits < 1 || e->bits > 8) return "its elements have 1 to 8 bits";
  if (e->group > SWY_MAX_ENCODING_GROUP) return "its groups have at most 65,536 elements";
  if (swy_scale_bytes(e->scale_dtype) == 0) return "its scales are f32, f16, bf16, e8m0 or f8_e4m3";
  if (e->has_offset > 1) return "has_offset is 0 or 1";
  if (e->has_offset && swy_scale_bytes(e->scale_dtype) == 1) return "its offsets are f32, f16 or bf16, as its scales";
  if (e->codes == NULL) return "it has no codes";
  for (uint32_t i = 0; i < (1u << e->bits); ++i) {
    uint32_t u;
    memcpy(&u, &e->codes[i], 4);
    if ((u & 0x7f800000u) == 0x7f800000u) return "a code is not a finite number";
  }
  return NULL;
}

/* Where the planes of a canonical segment lie. All in bytes but `rows` and `groups`. */
typedef struct swy_weight_planes {
  uint64_t rows;        /* product of all dims but the last */
  uint64_t groups;      /* per row; 0 for SWY_F32 and SWY_BF16 */
  uint64_t group_size;  /* elements in a full group */
  uint64_t group_bytes; /* of quants */
  uint64_t row_bytes;   /* of quants, or of a plain row */
  uint64_t scales;      /* offset of the scales plane */
  uint64_t offsets;     /* offset of the offsets plane */
  uint64_t total_bytes; /* of the segment */
  uint64_t scale_bytes; /* of one scale or offset */
} swy_weight_planes;

static inline uint64_t swy_align64(uint64_t n) { return (n + 63u) & ~(uint64_t)63u; }

/* The encoding of a tensor; NULL: it has none that can be read. */
static inline const swy_encoding* swy_encoding_of(const swy_tensor* t) {
  const size_t end = offsetof(swy_tensor, encoding) + sizeof t->encoding;
  if (t->dtype != SWY_ENCODED || t->struct_size < end) return NULL;
  return t->encoding;
}

enum { SWY_MXFP4_GROUP = 32 };

/* Fills `out`; returns 0, or 1 if the dtype is no weight encoding, an encoding has a flaw, the rank is not 1..3, a dim
 * is 0, or the size does not fit 64 bits with room to spare (2^62). */
static inline int swy_weight_planes_of(const swy_tensor* t, swy_weight_planes* out) {
  const uint64_t limit = (uint64_t)1 << 56; /* elements; times 4 bytes stays below 2^62 */
  uint64_t elements = 1;
  memset(out, 0, sizeof *out);
  if (t->rank < 1 || t->rank > 3) return 1;
  for (uint32_t i = 0; i < t->rank; ++i) {
    if (t->dims[i] == 0 || t->dims[i] > limit / elements) return 1;
    elements *= t->dims[i];
  }
  const uint64_t in = t->dims[t->rank - 1];
  out->rows = elements / in;
  if (t->dtype == SWY_F32 || t->dtype == SWY_BF16) {
    out->row_bytes = in * (t->dtype == SWY_F32 ? 4u : 2u);
    out->total_bytes = out->rows * out->row_bytes;
    return 0;
  }
  uint32_t bits = t->dtype == SWY_I8 ? 8 : 4;
  int has_offset = t->dtype == SWY_I4A;
  out->scale_bytes = 2;
  if (t->dtype == SWY_ENCODED) {
    const swy_encoding* e = swy_encoding_of(t);
    if (e == NULL || e->group != t->group || swy_encoding_flaw(e) != NULL) return 1;
    bits = e->bits;
    has_offset = e->has_offset != 0;
    out->scale_bytes = swy_scale_bytes(e->scale_dtype);
  } else if (t->dtype == SWY_MXFP4) {
    if (t->group != SWY_MXFP4_GROUP) return 1;
    out->scale_bytes = 1;
  } else if (t->dtype != SWY_I8 && t->dtype != SWY_I4 && t->dtype != SWY_I4A) {
    return 1;
  }
  out->group_size = t->group != 0 ? t->group : in;
  if (out->group_size > limit / out->rows) return 1; /* a padded row must not overflow either */
  out->groups = (in + out->group_size - 1) / out->group_size;
  out->group_bytes = (out->group_size * bits + 7) / 8;
  out->row_bytes = out->groups * out->group_bytes;
  out->scales = swy_align64(out->rows * out->row_bytes);
  const uint64_t plane = out->rows * out->groups * out->scale_bytes;
  out->offsets = swy_align64(out->scales + plane);
  out->total_bytes = has_offset ? swy_align64(out->offsets + plane) : out->offsets;
  return 0;
}

/* Element i of a group of `bits` bits per element. */
static inline uint32_t swy_element(const uint8_t* quants, uint32_t bits, uint64_t i) {
  const uint64_t at = i * bits;
  const uint32_t shift = (uint32_t)(at & 7u);
  uint32_t v = quants[at / 8];
  if (shift + bits > 8) v |= (uint32_t)quants[at / 8 + 1] << 8;
  return (v >> shift) & ((1u << bits) - 1u);
}

/* swy_weight_row of an SWY_ENCODED tensor. */
static inline void swy_encoded_row(const swy_encoding* e, const swy_weight_planes* p, const uint8_t* base, uint64_t row,
                                   uint64_t in, float* out) {
  for (uint64_t g = 0; g < p->groups; ++g) {
    const uint8_t* q = base + row * p->row_bytes + g * p->group_bytes;
    const uint64_t begin = g * p->group_size, at = (row * p->groups + g) * p->scale_bytes;
    const uint64_t count = in - begin < p->group_size ? in - begin : p->group_size;
    const float scale = swy_scale_to_f32(e->scale_dtype, base + p->scales + at);
    const float offset = e->has_offset ? swy_scale_to_f32(e->scale_dtype, base + p->offsets + at) : 0.0f;
    for (uint64_t i = 0; i < count; ++i) out[begin + i] = e->codes[swy_element(q, e->bits, i)] * scale + offset;
  }
}

/* Dequantizes row `row` of a canonical segment into `out` [in], in fp32, by the formula of its encoding. */
static inline void swy_weight_row(const swy_tensor* t, const swy_weight_planes* p, const void* segment, uint64_t row,
                                  float* out) {
  const uint8_t* base = (const uint8_t*)segment;
  const uint8_t* data = base + row * p->row_bytes;
  const uint64_t in = t->dims[t->rank - 1];
  if (t->dtype == SWY_F32) {
    memcpy(out, data, in * 4);
    return;
  }
  if (t->dtype == SWY_ENCODED) {
    swy_encoded_row(t->encoding, p, base, row, in, out);
    return;
  }
  if (t->dtype == SWY_BF16) {
    for (uint64_t i = 0; i < in; ++i) {
      uint16_t h;
      memcpy(&h, data + 2 * i, 2);
      out[i] = swy_bf16_to_f32(h);
    }
    return;
  }
  for (uint64_t g = 0; g < p->groups; ++g) {
    const uint8_t* q = data + g * p->group_bytes;
    const uint64_t begin = g * p->group_size;
    const uint64_t count = in - begin < p->group_size ? in - begin : p->group_size;
    uint16_t h;
    if (t->dtype == SWY_MXFP4) {
      const float exponent = swy_e8m0_to_f32(base[p->scales + row * p->groups + g]);
      for (uint64_t i = 0; i < count; ++i) out[begin + i] = swy_e2m1_to_f32(swy_element(q, 4, i)) * exponent;
      continue;
    }
    memcpy(&h, base + p->scales + (row * p->groups + g) * 2, 2);
    const float scale = swy_f16_to_f32(h);
    if (t->dtype == SWY_I8) {
      for (uint64_t i = 0; i < count; ++i) out[begin + i] = (float)(int8_t)q[i] * scale;
    } else if (t->dtype == SWY_I4) {
      for (uint64_t i = 0; i < count; ++i) {
        out[begin + i] = (float)((int)((q[i / 2] >> (4 * (i & 1))) & 15) - 8) * scale;
      }
    } else {
      memcpy(&h, base + p->offsets + (row * p->groups + g) * 2, 2);
      const float offset = swy_f16_to_f32(h);
      for (uint64_t i = 0; i < count; ++i) out[begin + i] = (float)((q[i / 2] >> (4 * (i & 1))) & 15) * scale + offset;
    }
  }
}

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* SWITCHYARD_WEIGHTS_H_ */
