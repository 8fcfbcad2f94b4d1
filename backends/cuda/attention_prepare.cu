// ATTENTION, what stands before it: norms and rotates q and k, and appends k and v to the pages.
#include "attention.cuh"

namespace gpu {
namespace {

constexpr uint32_t kWarps = 8, kThreads = kWarps * 32;

__device__ inline void store_kv(float* p, float x) { *p = x; }
__device__ inline void store_kv(uint16_t* p, float x) { *p = __bfloat16_as_ushort(__float2bfloat16_rn(x)); }

// What a row's heads share.
struct Row {
  float s[kMostRotary / 2], c[kMostRotary / 2];  // of pairs i and i + rotary / 2
  uint32_t seq, position;
  bool active;
};
// The whole warp comes here.
__device__ inline void look_at(const Attention& a, const swy_step* step, uint32_t row, Row& to) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t seq = step_array<uint32_t>(step, step->row_seq_at)[row];
  const uint32_t position = step_array<uint32_t>(step, step->row_position_at)[row];
  if (lane == 0) {
    to.seq = seq, to.position = position;
    to.active = step_array<uint32_t>(step, step->seq_active_at)[seq] != 0;
  }
  for (uint32_t i = lane; i < a.rotary / 2; i += 32) {
    constexpr double kTurn = 6.283185307179586476925;
    const double turns = position * a.turns[i];  // what is left of whole turns is exact
    sincosf(static_cast<float>((turns - rint(turns)) * kTurn), &to.s[i], &to.c[i]);
  }
}

// Two neighbouring elements at a time, where heads have whole pairs of them.
template <class T>
__device__ inline void store_head(T* to, const float* h, uint32_t dim, float scale) {
  const uint32_t lane = threadIdx.x % 32;
  if constexpr (sizeof(T) == 2) {
    if (dim % 2 == 0) {
      for (uint32_t i = lane; i < dim / 2; i += 32) {
        const __nv_bfloat162 v = __floats2bfloat162_rn(h[2 * i] * scale, h[2 * i + 1] * scale);
        reinterpret_cast<uint32_t*>(to)[i] = *reinterpret_cast<const uint32_t*>(&v);
      }
      return;
    }
  }
  for (uint32_t i = lane; i < dim; i += 32) store_kv(to + i, h[i] * scale);
}

constexpr int kHeld = 8;  // elements of a head that a lane keeps: heads have at most 256

__device__ inline void load_norm(const Attention& a, bool query, float (&norm)[kHeld]) {
  const Weight& w = query ? a.q_norm : a.k_norm;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const uint32_t i = j * 32 + threadIdx.x % 32;
    norm[j] = i < a.head_dim ? a.bias + plain_at(w, i) : 0.0f;
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

// A head, normed and turned, to h [head_dim] in shared memory. The whole warp comes here.
__device__ inline void turn_head(const Attention& a, const float (&v)[kHeld], const float (&norm)[kHeld],
                                 const Row& row, float* h) {
  const uint32_t lane = threadIdx.x % 32, dim = a.head_dim, half = a.rotary / 2;
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) squares = fmaf(v[j], v[j], squares);
  const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(dim) + a.eps);
  __syncwarp();  // what lay there is read
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

// A warp has one head, first query heads and then KV heads, of kRows rows, which it asks for together. blockIdx.y:
// rows. Shared memory: a head per warp.
template <class T, uint32_t kRows>
__global__ void __launch_bounds__(kThreads) prepare(const __grid_constant__ Attention a, const swy_step* step) {
  extern __shared__ float shared_heads[];
  __shared__ Row rows[kRows];
  const uint32_t warp = threadIdx.x / 32, dim = a.head_dim, head = blockIdx.x * kWarps + warp;
  const uint32_t first = blockIdx.y * kRows, count = step->rows > first ? min(kRows, step->rows - first) : 0;
  const bool query = head < a.heads;
  float norm[kHeld], v[kRows][kHeld];
  load_norm(a, query, norm);
  if (warp < count) look_at(a, step, first + warp, rows[warp]);
  __syncthreads();
  release_next();
  depend();
  if (head >= a.heads + a.kv_heads) return;
#pragma unroll
  for (uint32_t n = 0; n < kRows; ++n) {
    if (n < count) load_head(a, first + n, head, v[n]);
  }
  float* h = shared_heads + warp * dim;
#pragma unroll
  for (uint32_t n = 0; n < kRows; ++n) {
    if (n >= count || !(query || rows[n].active)) continue;
    turn_head(a, v[n], norm, rows[n], h);
    const uint64_t row = first + n, at = (row * a.heads + head) * dim;
    if (!query) {
      const uint32_t kv = head - a.heads;
      T* to = keys_at<T>(a, step, table_of(step, rows[n].seq), kv, rows[n].position);
      store_head(to, h, dim, 1);
      store_head(to + uint64_t{step->page_size} * dim, a.v + (row * a.kv_heads + kv) * dim, dim, 1);
    } else if (a.packed) {
      store_head(static_cast<uint16_t*>(a.ready) + at, h, dim, a.scale);
    } else {
      store_head(static_cast<float*>(a.ready) + at, h, dim, a.scale);
    }
  }
}

template <class T>
swy_status record_heads(const Recording& r, const Attention& a, uint32_t rows) {
  constexpr uint32_t kMany = 4;
  const uint32_t blocks = ceil_div(a.heads + a.kv_heads, kWarps);
  const size_t shared = kWarps * a.head_dim * sizeof(float);
  if (rows <= 64) return launch(r, prepare<T, 1>, dim3(blocks, rows), kThreads, shared, a, r.list.step);
  return launch(r, prepare<T, kMany>, dim3(blocks, ceil_div(rows, kMany)), kThreads, shared, a, r.list.step);
}

}  // namespace

swy_status record_prepare(const Recording& r, const Attention& a, uint32_t rows) {
  if (a.splits != 0 && a.counters == nullptr) return SWY_UNSUPPORTED;  // the reason is given already
  return a.bf16 ? record_heads<uint16_t>(r, a, rows) : record_heads<float>(r, a, rows);
}

}  // namespace gpu
