// SPDX-License-Identifier: Apache-2.0
// Heads of a row, normed and rotated: for the kernel that prepares them all, and for blocks of attention that prepare
// those that they need.
#pragma once

#include "attention.cuh"

namespace gpu {

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

// What a block of attention needs of a row: its query heads, scaled, to `shared` [kHeads][head_dim]; and, if it reads
// the row's own position, key and value to the pages, which no other block reads. All threads of the block call this.
template <class T>
__device__ inline void prepare_heads(const Attention& a, const swy_step* step, uint32_t row, uint32_t kv,
                                     uint32_t first_head, uint32_t heads, bool appends, float* shared) {
  __shared__ Row place;
  const uint32_t warp = threadIdx.x / 32, dim = a.head_dim;
  float norm[kHeld], v[kHeld];
  if (warp == 0) look_at(a, step, row, place);
  __syncthreads();
  if (appends && warp == 0) {
    float* h = shared;
    load_norm(a, false, norm);
    load_head(a, row, a.heads + kv, v);
    turn_head(a, v, norm, place, h);
    T* to = keys_at<T>(a, step, table_of(step, place.seq), kv, place.position);
    store_head(to, h, dim);
    store_head(to + uint64_t{step->page_size} * dim, a.v + (uint64_t{row} * a.kv_heads + kv) * dim, dim);
  }
  load_norm(a, true, norm);
  for (uint32_t i = warp; i < heads; i += blockDim.x / 32) {
    load_head(a, row, first_head + i, v);
    turn_head(a, v, norm, place, shared + i * dim);
  }
  __syncthreads();
}

}  // namespace gpu
