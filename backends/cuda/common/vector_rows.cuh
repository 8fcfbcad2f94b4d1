// SPDX-License-Identifier: Apache-2.0
// What the products of vector.cuh multiply: rows of activations in shared memory, and rows of weights, of which every
// lane requests its pieces early.
#pragma once

#include "device_code.cuh"

namespace gpu {

constexpr uint32_t kVectorWarps = 8;  // of a block

// Which forms of the activations a block keeps in shared memory.
constexpr uint32_t kFormNibbles = 1;  // for 4-bit weights: in each 8, the even ones, then the odd ones
constexpr uint32_t kFormBytes = 2;    // for 8-bit weights and MXFP4: in order
constexpr uint32_t kFormFloats = 4;   // for f32 and bf16 weights

__host__ __device__ inline uint32_t form_of(swy_dtype dtype) {
  return dtype == SWY_I8 || dtype == SWY_MXFP4 ? kFormBytes
         : dtype == SWY_I4 || dtype == SWY_I4A ? kFormNibbles
                                               : kFormFloats;
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
  uint32_t scale[R][U];  // scale_bits
};

__host__ __device__ inline uint32_t pieces_of(swy_dtype dtype, uint32_t width) {
  return dtype == SWY_I8 ? width / 16 : dtype == SWY_BF16 ? width / 8 : dtype == SWY_F32 ? width / 4 : width / 32;
}

// Whether the halves of a piece have groups of their own: 4 bits in groups of 16.
__host__ __device__ inline bool is_halved(const Weight& w) { return w.half_shift == 0 && w.dtype != SWY_I8; }

// A piece of a row of a weight.
struct PieceAt {
  const Weight& w;
  uint64_t row;
  uint32_t piece;

  __device__ const uint8_t* data() const { return w.data + row * w.row_bytes + piece * 16u; }
};
// The scale of a piece or, where its halves have their own, of the first or the second: fp16, and the offset above it.
// MXFP4: the scale as a float.
__device__ inline uint32_t scale_bits(const PieceAt& p, uint32_t half = 0) {
  const Weight& w = p.w;
  const uint32_t group = is_halved(w) ? 2 * p.piece + half : p.piece >> w.piece_shift;
  const uint64_t at = p.row * w.groups + group;
  if (w.dtype == SWY_MXFP4) {
    return __float_as_uint(power_of(__ldg(reinterpret_cast<const uint8_t*>(w.scales) + at)));
  }
  uint32_t bits = __ldg(w.scales + at);
  if (w.offsets != nullptr) bits |= static_cast<uint32_t>(__ldg(w.offsets + at)) << 16;
  return bits;
}

// R rows of one weight. What `fetch` and `multiply` take as rows has at(r, p), piece p of row r, and halved(), whether
// some row is_halved.
template <int R>
struct WeightRows {
  const Weight& w;
  uint64_t row[R];

  __device__ bool halved() const { return is_halved(w); }
  __device__ PieceAt at(int r, uint32_t p) const { return {w, row[r], p}; }
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
        const PieceAt piece = rows.at(r, p);
        to.q[r][u] = load_piece(piece.data());
        if (scaled) to.scale[r][u] = scale_bits(piece);
      }
    }
  }
}

}  // namespace gpu
