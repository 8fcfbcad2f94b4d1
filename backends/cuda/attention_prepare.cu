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

// A warp per head: query heads, then KV heads, and those gridDim.x * kWarps further. blockIdx.y: row. Shared memory: a
// head per warp.
template <class T>
__global__ void prepare(const __grid_constant__ Attention a, const swy_step* step) {
  extern __shared__ float shared_heads[];
  constexpr int kHeld = 8;  // elements of a head that a lane keeps: heads have at most 256
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, dim = a.head_dim, row = blockIdx.y;
  const bool there = row < step->rows;
  const uint32_t seq = there ? step_array<uint32_t>(step, step->row_seq_at)[row] : 0;
  const uint32_t position = there ? step_array<uint32_t>(step, step->row_position_at)[row] : 0;
  const bool active = there && step_array<uint32_t>(step, step->seq_active_at)[seq] != 0;
  const Turn turn = turn_of(a, position);
  const uint32_t half = a.rotary / 2;
  bool waited = false;
  for (uint32_t head = blockIdx.x * kWarps + warp; head < a.heads + a.kv_heads; head += gridDim.x * kWarps) {
    const bool query = head < a.heads;
    const uint32_t kv = head - a.heads;
    T* to = active && !query ? keys_at<T>(a, step, table_of(step, seq), kv, position) : nullptr;
    float norm[kHeld];
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const uint32_t i = j * 32 + lane;
      norm[j] = i < dim ? a.bias + plain_at(query ? a.q_norm : a.k_norm, i) : 0.0f;
    }
    if (!waited) release_next(), depend();
    waited = true;
    if (!there) return;
    const float* x = query ? a.q + (uint64_t{row} * a.heads + head) * dim * (a.gated ? 2 : 1)
                           : a.k + (uint64_t{row} * a.kv_heads + kv) * dim;
    float* h = shared_heads + warp * dim;
    float v[kHeld], squares = 0;
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const uint32_t i = j * 32 + lane;
      v[j] = i < dim ? x[i] : 0.0f;
      squares = fmaf(v[j], v[j], squares);
    }
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
    const uint64_t at = (uint64_t{row} * a.heads + head) * dim;
    if (query && a.packed) {
      store_head(static_cast<uint16_t*>(a.ready) + at, h, dim, a.scale);
    } else if (query) {
      store_head(static_cast<float*>(a.ready) + at, h, dim, a.scale);
    } else if (to != nullptr) {
      store_head(to, h, dim, 1);
      store_head(to + uint64_t{step->page_size} * dim, a.v + (uint64_t{row} * a.kv_heads + kv) * dim, dim, 1);
    }
    __syncwarp();
  }
  if (!waited) release_next(), depend();
}

}  // namespace

swy_status record_prepare(const Recording& r, const Attention& a, uint32_t rows) {
  if (a.splits != 0 && a.counters == nullptr) return SWY_UNSUPPORTED;  // the reason is given already
  const dim3 grid(rows > 64 ? 1 : ceil_div(a.heads + a.kv_heads, kWarps), rows);
  const size_t shared = kWarps * a.head_dim * sizeof(float);
  return a.bf16 ? launch(r, prepare<uint16_t>, grid, kThreads, shared, a, r.list.step)
                : launch(r, prepare<float>, grid, kThreads, shared, a, r.list.step);
}

}  // namespace gpu
