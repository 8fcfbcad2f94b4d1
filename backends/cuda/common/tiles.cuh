// SPDX-License-Identifier: Apache-2.0
// Products of many rows on tensor cores: tiles of 128 rows of a weight times NT rows of activations, in bf16.
//
// Weights stay as they are in memory. A thread of a quad takes 32 consecutive elements of a row, 16 bytes of 4-bit
// weights, and unpacks them into the registers of the matrix instruction. Which elements of the sum an instruction
// takes is free, as long as both operands agree. The activations are permuted into that order once (permute_rows): in
// each block of 128, unit j * 4 + t holds elements 32 t + 8 j + (0 4 1 5 2 6 3 7).
#pragma once

#include <cuda_bf16.h>

#include "device_code.cuh"
#include "host/kernels.h"
#include "mxfp4.cuh"

namespace gpu {

constexpr uint32_t kTileRows = 128, kTileBlock = 128, kTileThreads = 128;
constexpr uint32_t kTileStride = 320;  // bytes of shared memory per row of activations: free of bank conflicts

// Elements of a row in permuted form.
__host__ __device__ inline uint32_t permuted_width(uint32_t width) {
  return (width + kTileBlock - 1) / kTileBlock * kTileBlock;
}

// Where element i of a row lies in permuted form.
__device__ inline uint32_t permuted_index(uint32_t i) {
  const uint32_t in = i % kTileBlock, t = in / 32, j = in % 32 / 8, e = i % 8;
  return i - in + (j * 4 + t) * 8 + (e < 4 ? 2 * e : 2 * e - 7);
}

__device__ inline uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&v);
}

// Where unit i of a row, eight elements, lies in permuted form, and what it is.
__device__ inline uint32_t permuted_unit(uint32_t i) { return i - i % 16 + i % 4 * 4 + i % 16 / 4; }
__device__ inline uint4 permuted_eight(const float (&v)[8]) {
  return make_uint4(pack_bf16(v[0], v[4]), pack_bf16(v[1], v[5]), pack_bf16(v[2], v[6]), pack_bf16(v[3], v[7]));
}

// One thread's part of one row in a block of 128 elements: 32 elements, and the scales of their halves: fp16, and the
// offset above it; of MXFP4 bf16.
struct TileRow {
  uint4 q[4];
  uint32_t scale[2];
};

template <swy_dtype kDtype>
__device__ inline void load_tile_row(const Weight& w, uint64_t row, uint32_t block, uint32_t t, TileRow& to) {
  constexpr int kPieces = kDtype == SWY_BF16 ? 4 : kDtype == SWY_I8 ? 2 : 1;
  const uint32_t chunk = block * 4 + t;
  const bool in = chunk * 32 < w.width;
  to.scale[0] = to.scale[1] = 0;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) to.q[i] = make_uint4(0, 0, 0, 0);
  if (!in) return;
  const uint8_t* from = w.data + row * w.row_bytes + chunk * kPieces * 16u;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) to.q[i] = __ldg(reinterpret_cast<const uint4*>(from) + i);
  if (kDtype == SWY_BF16) return;
  const auto scale_of = [&](uint32_t half) -> uint32_t {
    const uint64_t at = row * w.groups + (half >> w.half_shift);
    if (kDtype == SWY_MXFP4) {
      const uint32_t e = __ldg(reinterpret_cast<const uint8_t*>(w.scales) + at);
      return __float_as_uint(power_of(e)) >> 16;
    }
    return __ldg(w.scales + at) | (w.offsets != nullptr ? static_cast<uint32_t>(__ldg(w.offsets + at)) << 16 : 0);
  };
  to.scale[0] = scale_of(chunk * 2);
  to.scale[1] = w.half_shift == 0 ? scale_of(chunk * 2 + 1) : to.scale[0];
}

// Eight elements, 8 j to 8 j + 7 of the thread's 32, as pairs (0 4) (1 5) (2 6) (3 7) of bf16.
template <swy_dtype kDtype>
__device__ inline void unpack_eight(const TileRow& r, bool affine, int j, uint32_t (&out)[4]) {
  if constexpr (kDtype == SWY_BF16) {
    const uint4 q = r.q[j];
    out[0] = __byte_perm(q.x, q.z, 0x5410);
    out[1] = __byte_perm(q.x, q.z, 0x7632);
    out[2] = __byte_perm(q.y, q.w, 0x5410);
    out[3] = __byte_perm(q.y, q.w, 0x7632);
  } else if constexpr (kDtype == SWY_I8) {
    const uint4 q = r.q[j / 2];
    const uint32_t first = (j % 2 == 0 ? q.x : q.z) ^ 0x80808080u, second = (j % 2 == 0 ? q.y : q.w) ^ 0x80808080u;
    const float scale = half_bits(static_cast<uint16_t>(r.scale[j / 2]));
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // 2^23 + byte, as fp32
      const float a = __uint_as_float(__byte_perm(first, 0x4b000000u, 0x7440 + i)) - 8388736.0f;
      const float b = __uint_as_float(__byte_perm(second, 0x4b000000u, 0x7440 + i)) - 8388736.0f;
      out[i] = pack_bf16(a * scale, b * scale);
    }
  } else if constexpr (kDtype == SWY_MXFP4) {
    const uint32_t q = j == 0 ? r.q[0].x : j == 1 ? r.q[0].y : j == 2 ? r.q[0].z : r.q[0].w;
    const uint32_t twice = r.scale[0] | r.scale[0] << 16;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __nv_bfloat162 v = __hmul2(mxfp4_pair(q >> (4 * i)), *reinterpret_cast<const __nv_bfloat162*>(&twice));
      out[i] = *reinterpret_cast<const uint32_t*>(&v);
    }
  } else {
    const uint32_t q = j == 0 ? r.q[0].x : j == 1 ? r.q[0].y : j == 2 ? r.q[0].z : r.q[0].w;
    const float s = half_bits(static_cast<uint16_t>(r.scale[j / 2]));
    const float o = affine ? fmaf(8.0f, s, half_bits(static_cast<uint16_t>(r.scale[j / 2] >> 16))) : 0.0f;
    const __nv_bfloat162 scale = __float2bfloat162_rn(s), offset = __float2bfloat162_rn(o);
    const __nv_bfloat162 middle = __float2bfloat162_rn(136.0f);
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // 128 + nibble, as bf16
      const uint32_t bits = ((q >> (4 * i)) & 0x000f000fu) | 0x43004300u;
      const __nv_bfloat162 v = __hfma2(__hsub2(*reinterpret_cast<const __nv_bfloat162*>(&bits), middle), scale, offset);
      out[i] = *reinterpret_cast<const uint32_t*>(&v);
    }
  }
}

__device__ inline void matrix_multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline void copy_later(void* shared, const void* global, bool in) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const uint32_t bytes = in ? 16 : 0;  // the rest of the 16 is filled with zeros
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes));
}
__device__ inline void copies_end() { asm volatile("cp.async.commit_group;"); }
template <int kLeft>
__device__ inline void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft));
}

// Rows of activations in permuted form, of which row n of the tile is rows[n] (null: n + first).
struct TileInput {
  const uint16_t* x;
  uint32_t stride;  // elements
};

// acc[m][n] of a warp: its two groups of 16 weight rows (first and second) times the NT rows of `source`, a list of
// `count` row numbers in shared memory. Shared memory: two buffers of NT * kTileStride.
template <swy_dtype kDtype, int NT>
__device__ inline void multiply_tile(const Weight& w0, uint64_t row0, const Weight& w1, uint64_t row1, uint64_t last0,
                                     uint64_t last1, const TileInput& x, const uint32_t* source, uint32_t count,
                                     char* shared, float (&acc)[2][NT / 8][4]) {
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t blocks = permuted_width(w0.width) / kTileBlock;
  const bool affine = w0.offsets != nullptr;
  const auto bring = [&](uint32_t block, uint32_t buffer) {
#pragma unroll
    for (uint32_t i = 0; i < NT * 16 / kTileThreads; ++i) {
      const uint32_t unit = i * kTileThreads + threadIdx.x, n = unit / 16, u = unit % 16;
      const uint32_t from = source[n < count ? n : 0];
      copy_later(shared + (buffer * NT + n) * kTileStride + u * 16,
                 x.x + uint64_t{from} * x.stride + block * kTileBlock + u * 8, n < count);
    }
    copies_end();
  };
  TileRow rows[2][2], next[2][2];
  const auto load = [&](uint32_t block, TileRow(&to)[2][2]) {
    load_tile_row<kDtype>(w0, min(row0 + g, last0), block, t, to[0][0]);
    load_tile_row<kDtype>(w0, min(row0 + g + 8, last0), block, t, to[0][1]);
    load_tile_row<kDtype>(w1, min(row1 + g, last1), block, t, to[1][0]);
    load_tile_row<kDtype>(w1, min(row1 + g + 8, last1), block, t, to[1][1]);
  };
  bring(0, 0);
  load(0, rows);
  for (uint32_t block = 0; block < blocks; ++block) {
    const bool more = block + 1 < blocks;
    if (more) {
      bring(block + 1, (block + 1) % 2);
      load(block + 1, next);
      copies_wait<1>();
    } else {
      copies_wait<0>();
    }
    __syncthreads();
    const char* tile = shared + (block % 2) * NT * kTileStride;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      uint32_t low[2][4], high[2][4];  // rows g and g + 8
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        unpack_eight<kDtype>(rows[m][0], affine, j, low[m]);
        unpack_eight<kDtype>(rows[m][1], affine, j, high[m]);
      }
#pragma unroll
      for (int n = 0; n < NT / 8; ++n) {
        const uint4 b = *reinterpret_cast<const uint4*>(tile + (n * 8 + g) * kTileStride + (j * 4 + t) * 16);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const uint32_t first[4] = {low[m][0], high[m][0], low[m][1], high[m][1]};
          const uint32_t second[4] = {low[m][2], high[m][2], low[m][3], high[m][3]};
          matrix_multiply(acc[m][n], first, b.x, b.y);
          matrix_multiply(acc[m][n], second, b.z, b.w);
        }
      }
    }
    __syncthreads();
    if (!more) break;
#pragma unroll
    for (int m = 0; m < 2; ++m) rows[m][0] = next[m][0], rows[m][1] = next[m][1];
  }
}

// Whether the tiles can read a weight.
inline bool tileable(const swy_tensor& t) { return t.dtype != SWY_F32 && readable_by_vectors(t); }
// The instance of a kernel, as a template of dtypes, for a weight; 4-bit weights with and without offsets have one.
#define SWY_TILED(dtype, kernel)              \
  ((dtype) == SWY_BF16    ? kernel<SWY_BF16>  \
   : (dtype) == SWY_I8    ? kernel<SWY_I8>    \
   : (dtype) == SWY_MXFP4 ? kernel<SWY_MXFP4> \
                          : kernel<SWY_I4>)

// x [rows, width] (row i: logit_row[i] with `gather`) as bf16 in permuted form, normed if the norm's weight is given.
struct Permute {
  const float* x;
  uint16_t* y;  // [rows, permuted_width]
  uint32_t width;
  swy_rows domain;
  bool gather, normed;
  Weight norm;
  float eps, bias;
};
swy_status record_permute(const Recording& r, const Permute& p, uint32_t rows);

}  // namespace gpu
