// SPDX-License-Identifier: Apache-2.0
// Keys and values in 8 bits (option kv_i8; device_states.hpp has the form): where a page's rows and their scales lie,
// and how a row is rounded.
#pragma once

#include "common/device_code.cuh"

namespace gpu {

struct BytePages {
  uint32_t kv_heads = 0, page_size = 0;
  uint32_t head_dim = 0;  // a multiple of 4, so that scales are aligned
  uint32_t rows = 0;      // of a page, of head_dim bytes each: those of keys and values, and what the scales take up

  BytePages() = default;
  BytePages(uint32_t heads, uint32_t dim, uint32_t size) : kv_heads(heads), page_size(size), head_dim(dim) {
    const uint32_t scales = heads * 2 * size;
    rows = scales + (scales * static_cast<uint32_t>(sizeof(float)) + dim - 1) / dim;
  }

  __host__ __device__ uint64_t page_bytes() const { return uint64_t{rows} * head_dim; }
  // Which row of a page has the key, or the `value`, of its i-th position; also, which of its scales.
  __host__ __device__ uint32_t row(uint32_t kv, bool value, uint32_t i) const {
    return (kv * 2 + value) * page_size + i;
  }
  __device__ int8_t* elements(void* pool, uint32_t page, uint32_t row) const {
    return static_cast<int8_t*>(pool) + (uint64_t{page} * rows + row) * head_dim;
  }
  __device__ float* scale(void* pool, uint32_t page, uint32_t row) const {
    return reinterpret_cast<float*>(elements(pool, page, kv_heads * 2 * page_size)) + row;
  }
};

// ---- rounding

// The largest absolute value of the row of which the lanes of a warp have `mine` as theirs; NaN if any is.
__device__ inline float largest_of_warp(float mine) {
  return __uint_as_float(__reduce_max_sync(kAll, __float_as_uint(mine) & 0x7fffffffu));
}
// Of two absolute values, as above.
__device__ inline float larger_of(float a, float b) {
  return __uint_as_float(max(__float_as_uint(a) & 0x7fffffffu, __float_as_uint(b) & 0x7fffffffu));
}

// How a row is rounded whose largest absolute value is given.
struct ByteScale {
  float scale, inverse;
  __device__ explicit ByteScale(float largest) {
    const bool zeros = largest < 1e-30f;  // this and NaN for what is not finite: as in device_states.hpp
    scale = zeros ? 0.0f : largest < INFINITY ? largest / 127 : NAN;
    inverse = zeros ? 0.0f : 127 / largest;
  }
  // In the low byte: in floats from 2^23 on, the last bit is worth 1.
  __device__ uint32_t round(float x) const { return __float_as_uint(fmaf(x, inverse, 12582912.0f)); }
};
// Four elements as bytes, the first lowest.
__device__ inline uint32_t to_bytes(const ByteScale& s, float a, float b, float c, float d) {
  const uint32_t low = __byte_perm(s.round(a), s.round(b), 0x0040), high = __byte_perm(s.round(c), s.round(d), 0x0040);
  return __byte_perm(low, high, 0x5410);
}

// Writes a row of a page from x [head_dim], aligned to 16 bytes. All lanes of a warp must call this.
__device__ inline void store_bytes(const BytePages& p, void* pool, uint32_t page, uint32_t row, const float* x) {
  const uint32_t lane = threadIdx.x % 32, words = p.head_dim / 4;
  const auto* from = reinterpret_cast<const float4*>(x);
  float top = 0;
  for (uint32_t i = lane; i < words; i += 32) {
    const float4 v = from[i];
    top = larger_of(top, larger_of(larger_of(v.x, v.y), larger_of(v.z, v.w)));
  }
  const ByteScale s(largest_of_warp(top));
  auto* to = reinterpret_cast<uint32_t*>(p.elements(pool, page, row));
  for (uint32_t i = lane; i < words; i += 32) {
    const float4 v = from[i];
    to[i] = to_bytes(s, v.x, v.y, v.z, v.w);
  }
  if (lane == 0) *p.scale(pool, page, row) = s.scale;
}

// Elements of a word as floats.
__device__ inline void to_floats(uint32_t word, float (&x)[4]) {
  // 2^23 + 128 + an element: its sign bit flipped, the byte is the element + 128.
  const uint32_t biased = word ^ 0x80808080u;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) x[i] = __uint_as_float(__byte_perm(biased, 0x4b000000u, 0x7650 | i)) - 8388736.0f;
}

}  // namespace gpu
