// SPDX-License-Identifier: Apache-2.0
// Matrix-vector products: a warp multiplies some rows of a weight with up to a few rows of activations.
//
// Quantized weights are multiplied as integers. Activations become 16-bit integers with one scale per 32 of them, as
// two 8-bit halves, so that dp4a sums four products at once: one instruction per element of a weight, where unpacking
// to floats would take three. This is finer than bf16. Sums of a scale's group are exact, whatever their order.
//
// A row's bits depend on the row alone: not on how many rows a block processes, nor on the size of the grid.
#pragma once

#include "device_code.cuh"

namespace gpu {

constexpr uint32_t kVectorWarps = 8;  // of a block

// Which forms of the activations a block keeps in shared memory.
constexpr uint32_t kFormNibbles = 1;  // for 4-bit weights: in each 8, the even ones, then the odd ones
constexpr uint32_t kFormBytes = 2;    // for 8-bit weights: in order
constexpr uint32_t kFormFloats = 4;   // for f32 and bf16 weights

__host__ __device__ inline uint32_t form_of(swy_dtype dtype) {
  return dtype == SWY_I8 ? kFormBytes : dtype == SWY_I4 || dtype == SWY_I4A ? kFormNibbles : kFormFloats;
}

// Activations [rows, width] in shared memory. Every array is cut into planes of 16 bytes per 32 elements (integers) or
// 8 elements (floats), so that neighbouring lanes read neighbouring 16 bytes.
struct Activations {
  uint4* nibbles;  // [rows][4: high 0-15, high 16-31, low 0-15, low 16-31][width / 32]
  uint4* bytes;    // likewise
  float4* floats;  // [rows][2][width / 8]
  float2* scales;  // [rows][width / 32]: scale, and the integers' sum
  uint32_t width;

  __host__ __device__ static uint32_t bytes_of(uint32_t forms, uint32_t rows, uint32_t width) {
    const uint32_t element = ((forms & kFormNibbles) != 0 ? 2 : 0) + ((forms & kFormBytes) != 0 ? 2 : 0) +
                             ((forms & kFormFloats) != 0 ? 4 : 0);
    return (rows * width * element + rows * (width / 32) * 8 + 15) / 16 * 16;
  }
  __device__ Activations(void* shared, uint32_t forms, uint32_t rows, uint32_t columns) : width(columns) {
    char* at = static_cast<char*>(shared);
    const auto take = [&](uint32_t form, uint32_t element) {
      char* p = at;
      if ((forms & form) != 0) at += rows * width * element;
      return p;
    };
    nibbles = reinterpret_cast<uint4*>(take(kFormNibbles, 2));
    bytes = reinterpret_cast<uint4*>(take(kFormBytes, 2));
    floats = reinterpret_cast<float4*>(take(kFormFloats, 4));
    scales = reinterpret_cast<float2*>(at);
  }
};

// Eight activations as 16-bit integers: the high bytes (signed) of elements 0-3 and 4-7, and the low ones (unsigned).
struct Split {
  uint32_t high[2], low[2];
};
__device__ inline Split split_integers(const int (&q)[8]) {
  Split s;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const uint32_t a = __byte_perm(q[4 * h], q[4 * h + 1], 0x0040), b = __byte_perm(q[4 * h + 2], q[4 * h + 3], 0x0040);
    s.low[h] = __byte_perm(a, b, 0x5410);
    const uint32_t c = __byte_perm(q[4 * h], q[4 * h + 1], 0x0051), d = __byte_perm(q[4 * h + 2], q[4 * h + 3], 0x0051);
    s.high[h] = __byte_perm(c, d, 0x5410);
  }
  return s;
}

// Writes eight activations, elements 8 i to 8 i + 7 of row m, to shared memory. Four neighbouring lanes have the four
// parts of 32 elements. All lanes of the warp must call this, those beyond the row with `inside` false. Results of
// products with them are multiplied by `factor`.
__device__ inline void stage_eight(const Activations& to, uint32_t forms, uint32_t m, uint32_t i, bool inside,
                                   const float (&v)[8], float factor) {
  if ((forms & kFormFloats) != 0 && inside) {
    float4* planes = to.floats + m * (to.width / 4);
    planes[i] = make_float4(v[0] * factor, v[1] * factor, v[2] * factor, v[3] * factor);
    planes[to.width / 8 + i] = make_float4(v[4] * factor, v[5] * factor, v[6] * factor, v[7] * factor);
  }
  if ((forms & (kFormNibbles | kFormBytes)) == 0) return;
  float top = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) top = fmaxf(top, fabsf(v[j]));
  top = fmaxf(top, __shfl_xor_sync(kAll, top, 1));
  top = fmaxf(top, __shfl_xor_sync(kAll, top, 2));
  const float scale = fmaxf(top * (1.0f / 32639.0f), 1e-37f), inverse = 1.0f / scale;
  int q[8], sum = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    q[j] = __float2int_rn(v[j] * inverse);
    sum += q[j];
  }
  sum += __shfl_xor_sync(kAll, sum, 1);
  sum += __shfl_xor_sync(kAll, sum, 2);
  if (!inside) return;
  const uint32_t chunks = to.width / 32, chunk = i / 4, part = i % 4;
  // Part 0 and 1 fill plane 0, parts 2 and 3 plane 1; each gives two words.
  const auto put = [&](uint4* all, const Split& s) {
    uint4* planes = all + m * chunks * 4;
    auto* high = reinterpret_cast<uint2*>(planes + (part / 2) * chunks + chunk);
    auto* low = reinterpret_cast<uint2*>(planes + (2 + part / 2) * chunks + chunk);
    high[part % 2] = make_uint2(s.high[0], s.high[1]);
    low[part % 2] = make_uint2(s.low[0], s.low[1]);
  };
  if ((forms & kFormNibbles) != 0) {
    const int evens_first[8] = {q[0], q[2], q[4], q[6], q[1], q[3], q[5], q[7]};
    put(to.nibbles, split_integers(evens_first));
  }
  if ((forms & kFormBytes) != 0) put(to.bytes, split_integers(q));
  if (part == 0) to.scales[m * chunks + chunk] = make_float2(scale * factor, static_cast<float>(sum));
}

__device__ inline void load_eight(const float* x, float (&v)[8]) {
  const float4 a = *reinterpret_cast<const float4*>(x), b = *reinterpret_cast<const float4*>(x + 4);
  v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

// Stages one row [width] of global memory; the whole block takes part. With a norm's weight the elements are multiplied
// by bias + norm. Returns this thread's share of the sum of the squares of x.
__device__ inline float stage_row(const Activations& to, uint32_t forms, uint32_t m, const float* x, const Weight* norm,
                                  float bias) {
  float squares = 0;
  const uint32_t eights = to.width / 8;
  for (uint32_t first = 0; first < eights; first += blockDim.x) {
    const uint32_t i = first + threadIdx.x;
    const bool inside = i < eights && x != nullptr;
    float v[8] = {};
    if (inside) load_eight(x + 8 * i, v);
    if (norm != nullptr && inside) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        squares = fmaf(v[j], v[j], squares);
        v[j] *= bias + plain_at(*norm, 8 * i + j);
      }
    }
    stage_eight(to, forms, m, i, i < eights, v, 1.0f);
  }
  return squares;
}

// ---- weights in registers

// Pieces first + lane, first + 32 + lane, … of R rows.
template <int R, int U>
struct Pieces {
  uint4 q[R][U];
  uint32_t scale[R][U];  // fp16 bits: the scale, and the offset above it
};

__host__ __device__ inline uint32_t pieces_of(swy_dtype dtype, uint32_t width) {
  return dtype == SWY_I8 ? width / 16 : dtype == SWY_BF16 ? width / 8 : dtype == SWY_F32 ? width / 4 : width / 32;
}

// R rows of one weight.
template <int R>
struct WeightRows {
  const Weight& w;
  uint64_t row[R];

  __device__ const uint8_t* data(int r, uint32_t p) const { return w.data + row[r] * w.row_bytes + p * 16u; }
  __device__ uint32_t scale(int r, uint32_t p) const {
    const uint64_t at = row[r] * w.groups + (p >> w.piece_shift);
    uint32_t bits = __ldg(w.scales + at);
    if (w.offsets != nullptr) bits |= static_cast<uint32_t>(__ldg(w.offsets + at)) << 16;
    return bits;
  }
};

template <int R, int U, class Rows>
__device__ inline void fetch(const Rows& rows, swy_dtype dtype, uint32_t first, uint32_t count, Pieces<R, U>& to) {
  const bool scaled = dtype != SWY_F32 && dtype != SWY_BF16;
#pragma unroll
  for (int u = 0; u < U; ++u) {
    const uint32_t p = first + 32 * u + threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (p < count) {
        to.q[r][u] = load_piece(rows.data(r, p));
        if (scaled) to.scale[r][u] = rows.scale(r, p);
      }
    }
  }
}

__device__ inline int dp4a_us(uint32_t a, uint32_t b, int c) {
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
  return c;
}
__device__ inline int dp4a_uu(uint32_t a, uint32_t b, int c) {
  asm("dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
  return c;
}
__device__ inline int dp4a_ss(uint32_t a, uint32_t b, int c) {
  asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
  return c;
}
__device__ inline int dp4a_su(uint32_t a, uint32_t b, int c) {
  asm("dp4a.s32.u32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
  return c;
}

// acc[r][m] += piece of row r times the activations of row m, 4-bit weights.
template <int M, int R, int U>
__device__ inline void multiply_nibbles(const Activations& x, bool affine, uint32_t chunk, int u, const Pieces<R, U>& w,
                                        float (&acc)[R][M]) {
  const uint32_t chunks = x.width / 32;
#pragma unroll
  for (int m = 0; m < M; ++m) {
    const uint4* planes = x.nibbles + m * chunks * 4 + chunk;
    const uint4 h0 = planes[0], h1 = planes[chunks], l0 = planes[2 * chunks], l1 = planes[3 * chunks];
    const float2 scale = x.scales[m * chunks + chunk];
    const uint32_t high[8] = {h0.x, h0.y, h0.z, h0.w, h1.x, h1.y, h1.z, h1.w};
    const uint32_t low[8] = {l0.x, l0.y, l0.z, l0.w, l1.x, l1.y, l1.z, l1.w};
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const uint32_t q[4] = {w.q[r][u].x, w.q[r][u].y, w.q[r][u].z, w.q[r][u].w};
      int sum_high = 0, sum_low = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t even = q[j] & 0x0f0f0f0fu, odd = (q[j] >> 4) & 0x0f0f0f0fu;
        sum_high = dp4a_us(even, high[2 * j], sum_high);
        sum_low = dp4a_uu(even, low[2 * j], sum_low);
        sum_high = dp4a_us(odd, high[2 * j + 1], sum_high);
        sum_low = dp4a_uu(odd, low[2 * j + 1], sum_low);
      }
      const float dot = static_cast<float>(sum_high * 256 + sum_low);
      const float s = half_bits(static_cast<uint16_t>(w.scale[r][u]));
      const float o = affine ? half_bits(static_cast<uint16_t>(w.scale[r][u] >> 16)) : -8.0f * s;
      acc[r][m] = fmaf(scale.x, fmaf(s, dot, o * scale.y), acc[r][m]);
    }
  }
}

// Likewise, 8-bit weights: a piece is half of 32 elements.
template <int M, int R, int U>
__device__ inline void multiply_bytes(const Activations& x, uint32_t piece, int u, const Pieces<R, U>& w,
                                      float (&acc)[R][M]) {
  const uint32_t chunks = x.width / 32, chunk = piece / 2;
#pragma unroll
  for (int m = 0; m < M; ++m) {
    const uint4* planes = x.bytes + m * chunks * 4 + (piece % 2) * chunks + chunk;
    const uint4 h = planes[0], l = planes[2 * chunks];
    const float scale = x.scales[m * chunks + chunk].x;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const uint4 q = w.q[r][u];
      const int sum_high = dp4a_ss(q.w, h.w, dp4a_ss(q.z, h.z, dp4a_ss(q.y, h.y, dp4a_ss(q.x, h.x, 0))));
      const int sum_low = dp4a_su(q.w, l.w, dp4a_su(q.z, l.z, dp4a_su(q.y, l.y, dp4a_su(q.x, l.x, 0))));
      const float dot = static_cast<float>(sum_high * 256 + sum_low);
      acc[r][m] = fmaf(scale * half_bits(static_cast<uint16_t>(w.scale[r][u])), dot, acc[r][m]);
    }
  }
}

template <int M, int R, int U>
__device__ inline void multiply_bf16(const Activations& x, uint32_t piece, int u, const Pieces<R, U>& w,
                                     float (&acc)[R][M]) {
#pragma unroll
  for (int m = 0; m < M; ++m) {
    const float4* planes = x.floats + m * (x.width / 4) + piece;
    const float4 a = planes[0], b = planes[x.width / 8];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const uint4 q = w.q[r][u];
      float sum = acc[r][m];
      sum = fmaf(bf16_bits(q.x & 0xffffu), a.x, sum);
      sum = fmaf(__uint_as_float(q.x & 0xffff0000u), a.y, sum);
      sum = fmaf(bf16_bits(q.y & 0xffffu), a.z, sum);
      sum = fmaf(__uint_as_float(q.y & 0xffff0000u), a.w, sum);
      sum = fmaf(bf16_bits(q.z & 0xffffu), b.x, sum);
      sum = fmaf(__uint_as_float(q.z & 0xffff0000u), b.y, sum);
      sum = fmaf(bf16_bits(q.w & 0xffffu), b.z, sum);
      acc[r][m] = fmaf(__uint_as_float(q.w & 0xffff0000u), b.w, sum);
    }
  }
}

template <int M, int R, int U>
__device__ inline void multiply_f32(const Activations& x, uint32_t piece, int u, const Pieces<R, U>& w,
                                    float (&acc)[R][M]) {
#pragma unroll
  for (int m = 0; m < M; ++m) {
    const float4 a = x.floats[m * (x.width / 4) + (piece % 2) * (x.width / 8) + piece / 2];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const uint4 q = w.q[r][u];
      float sum = fmaf(__uint_as_float(q.x), a.x, acc[r][m]);
      sum = fmaf(__uint_as_float(q.y), a.y, sum);
      sum = fmaf(__uint_as_float(q.z), a.z, sum);
      acc[r][m] = fmaf(__uint_as_float(q.w), a.w, sum);
    }
  }
}

// acc[r][m] += sum over all pieces of the rows. `ready` holds the first U pieces per lane, which were loaded earlier.
template <int M, int R, int U, class Rows>
__device__ inline void multiply(const Rows& rows, swy_dtype dtype, const Activations& x, Pieces<R, U>& ready,
                                float (&acc)[R][M]) {
  const uint32_t count = pieces_of(dtype, x.width);
  for (uint32_t first = 0; first < count; first += 32 * U) {
    if (first > 0) fetch<R, U>(rows, dtype, first, count, ready);
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const uint32_t p = first + 32 * u + threadIdx.x % 32;
      if (p >= count) continue;
      if (dtype == SWY_I4 || dtype == SWY_I4A) {
        multiply_nibbles<M, R, U>(x, dtype == SWY_I4A, p, u, ready, acc);
      } else if (dtype == SWY_I8) {
        multiply_bytes<M, R, U>(x, p, u, ready, acc);
      } else if (dtype == SWY_BF16) {
        multiply_bf16<M, R, U>(x, p, u, ready, acc);
      } else {
        multiply_f32<M, R, U>(x, p, u, ready, acc);
      }
    }
  }
}

}  // namespace gpu
