// SPDX-License-Identifier: Apache-2.0
// The first kernel of ATTENTION: norms and rotates q and k, and appends k and v to the pages.
#include "attention.cuh"

namespace gpu {
namespace {

constexpr uint32_t kWarps = 8, kThreads = kWarps * 32;

// Values that all heads of a row use.
struct Row {
  float s[kMostRotary / 2], c[kMostRotary / 2];  // of pairs i and i + rotary / 2
  uint32_t seq, position;
  bool active;
};
// All lanes of the warp must call this.
__device__ inline void look_at(const Attention& a, const swy_step* step, uint32_t row, Row& to) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t seq = step_array<uint32_t>(step, step->row_seq_at)[row];
  const uint32_t position = step_array<uint32_t>(step, step->row_position_at)[row];
  if (lane == 0) {
    to.seq = seq, to.position = position;
    to.active = step_array<uint32_t>(step, step->seq_active_at)[seq] != 0;
  }
  for (uint32_t i = lane; i < a.rotary / 2; i += 32) {
    const float2 t = sine_cosine(a, i, position);
    to.s[i] = t.x, to.c[i] = t.y;
  }
}

// Two neighbouring elements at a time if heads have whole pairs of them.
template <class T>
__device__ inline void store_head(T* to, const float* h, uint32_t dim) {
  const uint32_t lane = threadIdx.x % 32;
  if constexpr (sizeof(T) == 2) {
    if (dim % 2 == 0) {
      for (uint32_t i = lane; i < dim / 2; i += 32) {
        const __nv_bfloat162 v = __floats2bfloat162_rn(h[2 * i], h[2 * i + 1]);
        reinterpret_cast<uint32_t*>(to)[i] = *reinterpret_cast<const uint32_t*>(&v);
      }
      return;
    }
  }
  for (uint32_t i = lane; i < dim; i += 32) store_kv(to + i, h[i]);
}

constexpr int kHeld = 8;  // elements of a head that a lane keeps: heads have at most 256

__device__ inline void load_norm(const Attention& a, bool query, float (&norm)[kHeld]) {
  const Weight& w = query ? a.q_norm : a.k_norm;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const uint32_t i = j * 32 + threadIdx.x % 32;
    norm[j] = i >= a.head_dim ? 0.0f : a.normed ? a.bias + plain_at(w, i) : 1.0f;
  }
}
__device__ inline void load_head(const Attention& a, uint32_t row, uint32_t head, float (&v)[kHeld]) {
  const uint32_t dim = a.head_dim;
  const float* x = head < a.heads ? a.q + (uint64_t{row} * a.heads + head) * dim * (a.gated ? 2 : 1)
                                  : a.k + (uint64_t{row} * a.kv_heads + head - a.heads) * dim;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const uint32_t i = j * 32 + threadIdx.x % 32;
    v[j] = i < dim && head < a.heads + a.kv_heads ? x[i] : 0.0f;
  }
}

// The factor that gives a head of `dim` elements, the sum of whose squares over a warp's lanes is `squares`, its norm.
__device__ inline float scale_of(const Attention& a, float squares, uint32_t dim) {
  return a.normed ? rsqrtf(warp_sum(squares) / static_cast<float>(dim) + a.eps) : 1.0f;
}

// A head, normed and rotated, to h [head_dim] in shared memory. All lanes of the warp must call this.
__device__ inline void turn_head(const Attention& a, const float (&v)[kHeld], const float (&norm)[kHeld],
                                 const Row& row, float* h) {
  const uint32_t lane = threadIdx.x % 32, dim = a.head_dim, half = a.rotary / 2;
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) squares = fmaf(v[j], v[j], squares);
  const float scale = scale_of(a, squares, dim);
  __syncwarp();  // the previous contents have been read
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const uint32_t i = j * 32 + lane;
    if (i < dim) h[i] = v[j] * scale * norm[j];
  }
  __syncwarp();
  for (uint32_t i = lane; i < half; i += 32) {
    const float u = h[i], w = h[i + half], s = row.s[i], c = row.c[i];
    h[i] = u * c - w * s;
    h[i + half] = w * c + u * s;
  }
  __syncwarp();
}

// A warp per head, first query heads and then KV heads. blockIdx.y: row. Shared memory: a head per warp.
template <class T>
__global__ void __launch_bounds__(kThreads) prepare(const __grid_constant__ Attention a, const swy_step* step) {
  extern __shared__ __align__(16) float shared_heads[];
  __shared__ Row shared_row;
  const uint32_t warp = threadIdx.x / 32, dim = a.head_dim, head = blockIdx.x * kWarps + warp, row = blockIdx.y;
  const bool there = row < step->rows, query = head < a.heads;
  float norm[kHeld], v[kHeld];
  load_norm(a, query, norm);
  if (warp == 0 && there) look_at(a, step, row, shared_row);
  __syncthreads();
  release_next();
  depend();
  if (!there || head >= a.heads + a.kv_heads || !(query || shared_row.active)) return;
  load_head(a, row, head, v);
  float* h = shared_heads + warp * dim;
  turn_head(a, v, norm, shared_row, h);
  if (query) {
    for (uint32_t i = threadIdx.x % 32; i < dim; i += 32) h[i] *= a.scale;
    store_head(static_cast<float*>(a.ready) + (uint64_t{row} * a.heads + head) * dim, h, dim);
    return;
  }
  const uint32_t kv = head - a.heads, *table = table_of(step, shared_row.seq);
  const float* value = a.v + (uint64_t{row} * a.kv_heads + kv) * dim;
  if constexpr (sizeof(T) == 1) {
    const uint32_t size = step->page_size, page = table[shared_row.position / size];
    const uint32_t to = a.bytes.row(kv, false, shared_row.position % size);
    store_bytes(a.bytes, a.pages, page, to, h);
    store_bytes(a.bytes, a.pages, page, to + size, value);
  } else {
    T* to = keys_at<T>(a, step, table, kv, shared_row.position);
    store_head(to, h, dim);
    store_head(to + uint64_t{step->page_size} * dim, value, dim);
  }
}

// ---- prompts: the size of a head is known to the compiler, and a lane has pairs of neighbouring elements

template <uint32_t kDim>
struct Pairs {
  float2 v[kDim / 64];  // elements 2 lane and 2 lane + 1 of each 64
};
template <uint32_t kDim>
__device__ inline Pairs<kDim> load_pairs(const float* x) {
  Pairs<kDim> p;
#pragma unroll
  for (uint32_t j = 0; j < kDim / 64; ++j) p.v[j] = reinterpret_cast<const float2*>(x)[j * 32 + threadIdx.x % 32];
  return p;
}
template <uint32_t kDim>
__device__ inline void store_pairs(uint16_t* to, const Pairs<kDim>& p, float scale) {
#pragma unroll
  for (uint32_t j = 0; j < kDim / 64; ++j) {
    const __nv_bfloat162 v = __floats2bfloat162_rn(p.v[j].x * scale, p.v[j].y * scale);
    reinterpret_cast<uint32_t*>(to)[j * 32 + threadIdx.x % 32] = *reinterpret_cast<const uint32_t*>(&v);
  }
}

// To a row of a page in 8 bits.
template <uint32_t kDim>
__device__ inline void store_byte_pairs(const Attention& a, uint32_t page, uint32_t row, const Pairs<kDim>& p) {
  float top = 0;
#pragma unroll
  for (uint32_t j = 0; j < kDim / 64; ++j) top = larger_of(top, larger_of(p.v[j].x, p.v[j].y));
  const ByteScale s(largest_of_warp(top));
  auto* to = reinterpret_cast<uint16_t*>(a.bytes.elements(a.pages, page, row));
#pragma unroll
  for (uint32_t j = 0; j < kDim / 64; ++j) {
    to[j * 32 + threadIdx.x % 32] = static_cast<uint16_t>(__byte_perm(s.round(p.v[j].x), s.round(p.v[j].y), 0x0040));
  }
  if (threadIdx.x % 32 == 0) *a.bytes.scale(a.pages, page, row) = s.scale;
}

// Norms and rotates a head. `shared`: [rotary] of this warp.
template <uint32_t kDim>
__device__ inline void turn_pairs(const Attention& a, Pairs<kDim>& p, const Pairs<kDim>& norm, const Row& row,
                                  float* shared) {
  const uint32_t lane = threadIdx.x % 32, half = a.rotary / 2;
  float squares = 0;
#pragma unroll
  for (uint32_t j = 0; j < kDim / 64; ++j) squares = fmaf(p.v[j].x, p.v[j].x, fmaf(p.v[j].y, p.v[j].y, squares));
  const float scale = scale_of(a, squares, kDim);
  __syncwarp();  // the previous contents have been read
#pragma unroll
  for (uint32_t j = 0; j < kDim / 64; ++j) {
    p.v[j].x *= scale * norm.v[j].x, p.v[j].y *= scale * norm.v[j].y;
    if (j * 64 + 2 * lane < a.rotary) *reinterpret_cast<float2*>(shared + j * 64 + 2 * lane) = p.v[j];
  }
  __syncwarp();
  const auto turned = [&](float own, uint32_t i) {
    if (i >= a.rotary) return own;
    const bool low = i < half;
    const uint32_t pair = low ? i : i - half;
    const float other = shared[low ? i + half : pair];
    return own * row.c[pair] + (low ? -other : other) * row.s[pair];
  };
#pragma unroll
  for (uint32_t j = 0; j < kDim / 64; ++j) {
    if (j * 64 >= a.rotary) break;
    p.v[j].x = turned(p.v[j].x, j * 64 + 2 * lane), p.v[j].y = turned(p.v[j].y, j * 64 + 2 * lane + 1);
  }
}

// A warp has one head, first query heads and then KV heads, of kRows rows, which it loads together. blockIdx.y: rows.
constexpr uint32_t kRows = 4;
template <uint32_t kDim, bool kBytes>
__global__ void __launch_bounds__(kThreads) prepare_prompt(const __grid_constant__ Attention a, const swy_step* step) {
  __shared__ Row rows[kRows];
  __shared__ __align__(8) float shared_heads[kWarps][kDim];
  const uint32_t warp = threadIdx.x / 32, head = blockIdx.x * kWarps + warp, kv = head - a.heads;
  const uint32_t first = blockIdx.y * kRows, count = step->rows > first ? min(kRows, step->rows - first) : 0;
  const bool query = head < a.heads;
  Pairs<kDim> norm, v[kRows];
#pragma unroll
  for (uint32_t j = 0; j < kDim / 64; ++j) {
    const uint32_t i = j * 64 + threadIdx.x % 32 * 2;
    const Weight& w = query ? a.q_norm : a.k_norm;
    norm.v[j] = a.normed ? make_float2(a.bias + plain_at(w, i), a.bias + plain_at(w, i + 1)) : make_float2(1, 1);
  }
  if (warp < count) look_at(a, step, first + warp, rows[warp]);
  __syncthreads();
  release_next();
  depend();
  if (head >= a.heads + a.kv_heads) return;
#pragma unroll
  for (uint32_t n = 0; n < kRows; ++n) {
    const uint64_t row = first + min(n, max(count, 1u) - 1);
    v[n] = load_pairs<kDim>(query ? a.q + (row * a.heads + head) * kDim * (a.gated ? 2 : 1)
                                  : a.k + (row * a.kv_heads + kv) * kDim);
  }
#pragma unroll
  for (uint32_t n = 0; n < kRows; ++n) {
    if (n >= count || !(query || rows[n].active)) continue;
    const uint64_t row = first + n;
    turn_pairs<kDim>(a, v[n], norm, rows[n], shared_heads[warp]);
    if (query) {
      store_pairs<kDim>(static_cast<uint16_t*>(a.ready) + (row * a.heads + head) * kDim, v[n], a.scale);
    } else {
      const uint32_t* table = table_of(step, rows[n].seq);
      const Pairs<kDim> value = load_pairs<kDim>(a.v + (row * a.kv_heads + kv) * kDim);
      if constexpr (kBytes) {
        const uint32_t size = step->page_size, page = table[rows[n].position / size];
        const uint32_t to = a.bytes.row(kv, false, rows[n].position % size);
        store_byte_pairs<kDim>(a, page, to, v[n]);
        store_byte_pairs<kDim>(a, page, to + size, value);
      } else {
        uint16_t* to = keys_at<uint16_t>(a, step, table, kv, rows[n].position);
        store_pairs<kDim>(to, v[n], 1);
        store_pairs<kDim>(to + uint64_t{step->page_size} * kDim, value, 1);
      }
    }
  }
}

}  // namespace

swy_status record_prepare(const Recording& r, const Attention& a, uint32_t rows) {
  const uint32_t blocks = ceil_div(a.heads + a.kv_heads, kWarps);
  const bool bytes = a.kv_type == SWY_I8;
  if (a.packed) {
    const auto kernel = a.head_dim == 64    ? (bytes ? prepare_prompt<64, true> : prepare_prompt<64, false>)
                        : a.head_dim == 128 ? (bytes ? prepare_prompt<128, true> : prepare_prompt<128, false>)
                                            : (bytes ? prepare_prompt<256, true> : prepare_prompt<256, false>);
    return launch(r, kernel, dim3(blocks, ceil_div(rows, kRows)), kThreads, 0, a, r.list.step);
  }
  const auto kernel = bytes ? prepare<int8_t> : a.kv_type == SWY_BF16 ? prepare<uint16_t> : prepare<float>;
  return launch(r, kernel, dim3(blocks, rows), kThreads, kWarps * a.head_dim * sizeof(float), a, r.list.step);
}

}  // namespace gpu
