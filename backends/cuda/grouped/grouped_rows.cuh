// SPDX-License-Identifier: Apache-2.0
// One thread's part of a weight's rows in a grouped product, and its conversion into the registers of wgmma's first
// operand.
#pragma once

#include "common/device_code.cuh"
#include "common/mxfp4.cuh"
#include "common/wgmma.cuh"
#include "grouped.h"

namespace gpu {

#ifdef SWY_HOPPER

// One thread's part of one row of a weight in a span: 32 elements, and their scale and offset; of 8-bit weights, which
// may have groups of 16, those of both halves.
template <swy_dtype kDtype>
struct SpanRow {
  static constexpr int kPieces = kDtype == SWY_BF16 ? 4 : kDtype == SWY_I8 ? 2 : 1;
  uint4 q[kPieces];
  static constexpr int kHalves = kDtype == SWY_I8 ? 2 : 1;
  __nv_bfloat162 factors[kHalves];  // scale and offset

  __device__ void load(const char* stage, uint32_t row, uint32_t t) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const uint32_t at = kDtype == SWY_BF16
                              ? (t / 2) * (kTileRowsOfWeight * 128) + row * 128 + (((t % 2) * 4 + i) ^ (row % 8)) * 16
                          : kDtype == SWY_I8 ? row * 128 + ((2 * t + i) ^ (row % 8)) * 16
                                             : row * 64 + t * 16;
      q[i] = *reinterpret_cast<const uint4*>(stage + at);
    }
  }
  // shift: of a group's size as a power of two.
  __device__ void load_scales(const char* scales, uint32_t row, uint32_t group, uint32_t shift, bool affine) {
    factors[0] = factors_at(scales, row * 16 + group % 8 * 2, affine);
    if constexpr (kHalves == 2) {
      factors[1] = shift == 4 ? factors_at(scales, row * 16 + (group + 1) % 8 * 2, affine) : factors[0];
    }
  }
  static __device__ __nv_bfloat162 factors_at(const char* scales, uint32_t at, bool affine) {
    const float s = half_bits(*reinterpret_cast<const uint16_t*>(scales + at));
    const float o =
        affine ? fmaf(8.0f, s, half_bits(*reinterpret_cast<const uint16_t*>(scales + kScalePlane + at))) : 0.0f;
    return __floats2bfloat162_rn(s, o);
  }
  // The scale of MXFP4.
  __device__ void set_exponent(uint32_t e) { factors[0] = __float2bfloat162_rn(power_of(e)); }
  // Elements 8 u to 8 u + 7 as pairs (0 4) (1 5) (2 6) (3 7) of bf16.
  // `magic`: 0x43004300, 128 as bf16, in a register.
  __device__ void unpack(int u, uint32_t magic, uint32_t (&out)[4]) const {
    if constexpr (kDtype == SWY_BF16) {
      out[0] = __byte_perm(q[u].x, q[u].z, 0x5410);
      out[1] = __byte_perm(q[u].x, q[u].z, 0x7632);
      out[2] = __byte_perm(q[u].y, q[u].w, 0x5410);
      out[3] = __byte_perm(q[u].y, q[u].w, 0x7632);
      return;
    } else if constexpr (kDtype == SWY_I8) {
      const uint4& v = q[u / 2];
      const uint32_t low = u % 2 == 0 ? v.x : v.z, high = u % 2 == 0 ? v.y : v.w;
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // (128 + the low 7 bits) - (128 or, if negative, 256)
        const uint32_t bytes = __byte_perm(low, high, i | ((4 + i) << 8));
        const uint32_t b = masked<0x00800080>(bytes, magic);
        out[i] = scaled(masked<0x007f007f>(bytes, magic), *reinterpret_cast<const __nv_bfloat162*>(&b), u / 2);
      }
    } else if constexpr (kDtype == SWY_MXFP4) {
      const uint32_t v = u == 0 ? q[0].x : u == 1 ? q[0].y : u == 2 ? q[0].z : q[0].w;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const __nv_bfloat162 w = __hmul2(mxfp4_pair(v >> (4 * i)), factors[0]);
        out[i] = *reinterpret_cast<const uint32_t*>(&w);
      }
    } else {
      const uint32_t v = u == 0 ? q[0].x : u == 1 ? q[0].y : u == 2 ? q[0].z : q[0].w;
      const __nv_bfloat162 middle = __float2bfloat162_rn(136.0f);
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // 128 + nibble
        out[i] = scaled(masked<0x000f000f>(v >> (4 * i), magic), middle, 0);
      }
    }
  }

 private:
  // (bits & mask) | magic in one instruction, which can take only one constant.
  template <uint32_t kMask>
  static __device__ uint32_t masked(uint32_t bits, uint32_t magic) {
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(bits), "n"(kMask), "r"(magic));
    return r;
  }
  __device__ uint32_t scaled(uint32_t bits, __nv_bfloat162 minus, int half) const {
    const __nv_bfloat162 q = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&bits), minus);
    const __nv_bfloat162 v = __hfma2(q, __low2bfloat162(factors[half]), __high2bfloat162(factors[half]));
    return *reinterpret_cast<const uint32_t*>(&v);
  }
};

// The row of the tile to which a consumer's acc[m][4 n + 2 h + e] belongs. kPairs: the row of the tile's second half
// that goes with acc[m][4 n + e] is in acc[m][4 n + 2 + e] if kBlocks is 1, and otherwise in acc[m + 1][..]. Without
// kPairs 4 * kBlocks neighbouring rows are in every fourth pair of lanes: 4 kBlocks (g / 2) + 4 m + 2 h + g % 2.
enum class RowOrder { pairs, neighbours };
template <int kBlocks, RowOrder kOrder>
__device__ inline uint32_t tile_row(uint32_t m, uint32_t h) {
  const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
  if (kOrder == RowOrder::neighbours) return warp * 16 * kBlocks + g / 2 * 4 * kBlocks + m * 4 + h * 2 + g % 2;
  return kBlocks == 1 ? h * kBoxRows + warp * 8 + g : m * kBoxRows + warp * 16 + h * 8 + g;
}

// One thread's part of all its rows.
template <swy_dtype kDtype, int kBlocks, RowOrder kOrder>
struct SpanRows {
  SpanRow<kDtype> rows[kBlocks][2];

  __device__ void load(const char* stage) {
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) rows[m][h].load(stage, tile_row<kBlocks, kOrder>(m, h), threadIdx.x % 4);
    }
  }
  __device__ void load_scales(const char* scales, uint32_t group, uint32_t shift, bool affine) {
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) rows[m][h].load_scales(scales, tile_row<kBlocks, kOrder>(m, h), group, shift, affine);
    }
  }
  // Unit u of four: the first operands [m][step] of two steps of 16 elements.
  __device__ void unpack(int u, uint32_t magic, uint32_t (&a)[kBlocks][2][4]) const {
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        uint32_t v[4];
        rows[m][h].unpack(u, magic, v);
        a[m][0][h] = v[0], a[m][0][2 + h] = v[1];
        a[m][1][h] = v[2], a[m][1][2 + h] = v[3];
      }
    }
  }
  static __device__ void keep_unit(uint32_t (&a)[kBlocks][2][4]) {
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) keep(a[m][0]), keep(a[m][1]);
  }
};

#endif  // SWY_HOPPER

}  // namespace gpu
