// ATTENTION, what stands before it: norms and rotates q and k, and appends k and v to the pages.
#include "attention.cuh"

namespace gpu {
namespace {

constexpr uint32_t kWarps = 8, kThreads = kWarps * 32;

__device__ inline void store_kv(float* p, float x) { *p = x; }
__device__ inline void store_kv(uint16_t* p, float x) { *p = __bfloat16_as_ushort(__float2bfloat16_rn(x)); }

// What a row's heads share: turned by (s, c), and where its keys go.
struct Turn {
  float s[4], c[4];  // of pairs j * 32 + lane
};
__device__ inline Turn turn_of(const Attention& a, uint32_t position) {
  Turn t;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t i = j * 32 + threadIdx.x % 32;
    t.s[j] = t.c[j] = 0;
    if (i >= a.rotary / 2) continue;
    constexpr double kTurn = 6.283185307179586476925;
    const double turns = position * a.turns[i];  // what is left of whole turns is exact
    sincosf(static_cast<float>((turns - rint(turns)) * kTurn), &t.s[j], &t.c[j]);
  }
  return t;
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
                                 const Turn& turn, float* h) {
  const uint32_t lane = threadIdx.x % 32, dim = a.head_dim, half = a.rotary / 2;
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) squares = fmaf(v[j], v[j], squares);
  const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(dim) + a.eps);
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const uint32_t i = j * 32 + lane;
    if (i < dim) h[i] = v[j] * scale * norm[j];
  }
  __syncwarp();
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t i = j * 32 + lane;
    if (i >= half) continue;
    const float u = h[i], w = h[i + half];
    h[i] = u * turn.c[j] - w * turn.s[j];
    h[i + half] = w * turn.c[j] + u * turn.s[j];
  }
  __syncwarp();
}

// A warp has kHeads heads, query heads and then KV heads, which it asks for together. blockIdx.y: row. Shared memory: a
// head per warp.
template <class T, int kHeads>
__global__ void __launch_bounds__(kThreads) prepare(const __grid_constant__ Attention a, const swy_step* step) {
  extern __shared__ float shared_heads[];
  const uint32_t warp = threadIdx.x / 32, dim = a.head_dim, row = blockIdx.y;
  const uint32_t first = blockIdx.x * kWarps * kHeads + warp;
  const bool there = row < step->rows;
  const uint32_t seq = there ? step_array<uint32_t>(step, step->row_seq_at)[row] : 0;
  const uint32_t position = there ? step_array<uint32_t>(step, step->row_position_at)[row] : 0;
  const bool active = there && step_array<uint32_t>(step, step->seq_active_at)[seq] != 0;
  const Turn turn = turn_of(a, position);
  float norm[kHeld], v[kHeads][kHeld];
  load_norm(a, first < a.heads, norm);
  release_next();
  depend();
  if (!there || first >= a.heads + a.kv_heads) return;
#pragma unroll
  for (int n = 0; n < kHeads; ++n) load_head(a, row, first + n * kWarps, v[n]);
  float* h = shared_heads + warp * dim;
#pragma unroll
  for (int n = 0; n < kHeads; ++n) {
    const uint32_t head = first + n * kWarps;
    if (head >= a.heads + a.kv_heads) break;
    if (n > 0 && head >= a.heads && head - kWarps < a.heads) load_norm(a, false, norm);
    turn_head(a, v[n], norm, turn, h);
    const uint64_t at = (uint64_t{row} * a.heads + head) * dim;
    if (head >= a.heads) {
      const uint32_t kv = head - a.heads;
      if (!active) continue;
      T* to = keys_at<T>(a, step, table_of(step, seq), kv, position);
      store_head(to, h, dim, 1);
      store_head(to + uint64_t{step->page_size} * dim, a.v + (uint64_t{row} * a.kv_heads + kv) * dim, dim, 1);
    } else if (a.packed) {
      store_head(static_cast<uint16_t*>(a.ready) + at, h, dim, a.scale);
    } else {
      store_head(static_cast<float*>(a.ready) + at, h, dim, a.scale);
    }
    __syncwarp();
  }
}

template <class T>
swy_status record_heads(const Recording& r, const Attention& a, uint32_t rows) {
  const uint32_t heads = a.heads + a.kv_heads;
  const size_t shared = kWarps * a.head_dim * sizeof(float);
  if (rows <= 64)
    return launch(r, prepare<T, 1>, dim3(ceil_div(heads, kWarps), rows), kThreads, shared, a, r.list.step);
  return launch(r, prepare<T, 3>, dim3(ceil_div(heads, kWarps * 3), rows), kThreads, shared, a, r.list.step);
}

}  // namespace

swy_status record_prepare(const Recording& r, const Attention& a, uint32_t rows) {
  if (a.splits != 0 && a.counters == nullptr) return SWY_UNSUPPORTED;  // the reason is given already
  return a.bf16 ? record_heads<uint16_t>(r, a, rows) : record_heads<float>(r, a, rows);
}

}  // namespace gpu
