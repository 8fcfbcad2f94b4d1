// SPDX-License-Identifier: Apache-2.0
// Matrix-vector products: a warp multiplies some rows of a weight with up to a few rows of activations.
//
// Quantized weights are multiplied as integers. Activations become 16-bit integers with one scale per 32 of them, as
// two 8-bit halves, so that dp4a sums four products at once: one instruction per element of a weight, where unpacking
// to floats would take three. This is finer than bf16. Sums of a scale's group are exact, whatever their order.
//
// A row's bits depend on the row alone: not on how many rows a block processes, nor on the size of the grid.
#pragma once

#include "vector_rows.cuh"

namespace gpu {

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

// The same where each half of a piece has a scale of its own.
template <int M, int R, int U, class Rows>
__device__ inline void multiply_halves(const Rows& rows, const Activations& x, uint32_t chunk, int u,
                                       const Pieces<R, U>& w, float (&acc)[R][M]) {
  const uint32_t chunks = x.width / 32;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const PieceAt piece = rows.at(r, chunk);
    const uint32_t bits[2] = {w.scale[r][u], scale_bits(piece, 1)};
    const uint32_t q[4] = {w.q[r][u].x, w.q[r][u].y, w.q[r][u].z, w.q[r][u].w};
#pragma unroll
    for (int m = 0; m < M; ++m) {
      const uint4* planes = x.nibbles + m * chunks * 4 + chunk;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 h = planes[half * chunks], l = planes[(2 + half) * chunks];
        const uint32_t high[4] = {h.x, h.y, h.z, h.w}, low[4] = {l.x, l.y, l.z, l.w};
        int dot_high = 0, dot_low = 0, sum_high = 0, sum_low = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const uint32_t both = q[2 * half + j / 2] >> (j % 2 * 4) & 0x0f0f0f0fu;
          dot_high = dp4a_us(both, high[j], dot_high);
          dot_low = dp4a_uu(both, low[j], dot_low);
          sum_high = dp4a_us(0x01010101u, high[j], sum_high);
          sum_low = dp4a_uu(0x01010101u, low[j], sum_low);
        }
        const float dot = static_cast<float>(dot_high * 256 + dot_low);
        const float sum = static_cast<float>(sum_high * 256 + sum_low);
        const float s = half_bits(static_cast<uint16_t>(bits[half]));
        const float o = piece.w.offsets != nullptr ? half_bits(static_cast<uint16_t>(bits[half] >> 16)) : -8.0f * s;
        acc[r][m] = fmaf(x.scales[m * chunks + chunk].x, fmaf(s, dot, o * sum), acc[r][m]);
      }
    }
  }
}

// Eight elements of MXFP4, twice their numbers as signed bytes: 0 to 3, and 4 to 7.
__device__ inline uint2 doubled_bytes(uint32_t q) {
  const uint32_t size = q & 0x77777777u, sign = (q >> 3) & 0x11111111u;
  const auto four = [](uint32_t sizes, uint32_t signs) {
    const uint32_t plus = __byte_perm(0x03020100u, 0x0c080604u, sizes);
    const uint32_t minus = __byte_perm(0xfdfeff00u, 0xf4f8fafcu, sizes);
    const uint32_t mask = __byte_perm(0x0000ff00u, 0, signs);
    return (plus & ~mask) | (minus & mask);
  };
  return make_uint2(four(size, sign), four(size >> 16, sign >> 16));
}

template <int M, int R, int U>
__device__ inline void multiply_mxfp4(const Activations& x, uint32_t chunk, int u, const Pieces<R, U>& w,
                                      float (&acc)[R][M]) {
  const uint32_t chunks = x.width / 32;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const uint4 q = w.q[r][u];
    const uint2 bytes[4] = {doubled_bytes(q.x), doubled_bytes(q.y), doubled_bytes(q.z), doubled_bytes(q.w)};
    const float half = 0.5f * __uint_as_float(w.scale[r][u]);
#pragma unroll
    for (int m = 0; m < M; ++m) {
      const uint4* planes = x.bytes + m * chunks * 4 + chunk;
      int sum_high = 0, sum_low = 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4 h = planes[i * chunks], l = planes[(2 + i) * chunks];
        const uint2 a = bytes[2 * i], b = bytes[2 * i + 1];
        sum_high = dp4a_ss(b.y, h.w, dp4a_ss(b.x, h.z, dp4a_ss(a.y, h.y, dp4a_ss(a.x, h.x, sum_high))));
        sum_low = dp4a_su(b.y, l.w, dp4a_su(b.x, l.z, dp4a_su(a.y, l.y, dp4a_su(a.x, l.x, sum_low))));
      }
      const float dot = static_cast<float>(sum_high * 256 + sum_low);
      acc[r][m] = fmaf(x.scales[m * chunks + chunk].x * half, dot, acc[r][m]);
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

// Rows of activations with which the products of MXFP4 and of halved pieces are made: more of them need more registers
// than the others.
constexpr int kMostRareRows = 4;
inline bool is_rare(const Weight& w) { return w.dtype == SWY_MXFP4 || is_halved(w); }

// acc[r][m] += sum over all pieces of the rows. `ready` holds the first U pieces per lane, which were loaded earlier.
template <int M, int R, int U, class Rows>
__device__ inline void multiply(const Rows& rows, swy_dtype dtype, const Activations& x, Pieces<R, U>& ready,
                                float (&acc)[R][M]) {
  const uint32_t count = pieces_of(dtype, x.width);
  const bool nibbles = dtype == SWY_I4 || dtype == SWY_I4A, halved = nibbles && M <= kMostRareRows && rows.halved();
  for (uint32_t first = 0; first < count; first += 32 * U) {
    if (first > 0) fetch<R, U>(rows, dtype, first, count, ready);
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const uint32_t p = first + 32 * u + threadIdx.x % 32;
      if (p >= count) continue;
      if (halved) {
        if constexpr (M <= kMostRareRows) multiply_halves<M, R, U>(rows, x, p, u, ready, acc);
      } else if (nibbles) {
        multiply_nibbles<M, R, U>(x, dtype == SWY_I4A, p, u, ready, acc);
      } else if (dtype == SWY_I8) {
        multiply_bytes<M, R, U>(x, p, u, ready, acc);
      } else if (dtype == SWY_MXFP4) {
        if constexpr (M <= kMostRareRows) multiply_mxfp4<M, R, U>(x, p, u, ready, acc);
      } else if (dtype == SWY_BF16) {
        multiply_bf16<M, R, U>(x, p, u, ready, acc);
      } else {
        multiply_f32<M, R, U>(x, p, u, ready, acc);
      }
    }
  }
}

}  // namespace gpu
