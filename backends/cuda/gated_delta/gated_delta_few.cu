// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA for prompts: sequences of the step that have few rows, token by token, beside others that have many.
//
// A chunk costs the same however few rows it has, and one block would walk through all sequences one by one. So every
// sequence has its own blocks. A warp owns four columns of one head's state, eight lanes per column.
#include "common/matrix.cuh"
#include "gated_delta_chunks.cuh"

namespace gpu {
namespace {

constexpr uint32_t kColumns = 4, kThreads = 256;

__device__ inline void load_keys(const char* tile, uint32_t row, uint32_t units, uint32_t key, float (&x)[4]) {
  const uint32_t turn = units >= 8 ? row % 8 : row / 2 % 4;  // tile_at of matrix.cuh
  const uint2 v = *reinterpret_cast<const uint2*>(tile + (row * units + ((key / 8) ^ turn)) * 16 + key % 8 * 2);
  x[0] = low_of(v.x), x[1] = high_of(v.x), x[2] = low_of(v.y), x[3] = high_of(v.y);
}

// blockIdx.x: 32 columns; blockIdx.y: value head; blockIdx.z: sequence. N: groups of 32 keys. kPends: with pending
// rows.
template <int N, bool kPends, bool kI16>
__global__ void __launch_bounds__(kThreads) walk_few(const __grid_constant__ Chunks c, const swy_step* step) {
  const Delta& d = c.d;
  const uint32_t lane = threadIdx.x % 32, part = lane % 8, head = blockIdx.y;
  const uint32_t column = (blockIdx.x * (kThreads / 32) + threadIdx.x / 32) * kColumns + lane / 8;
  release_next();
  const Run s = blockIdx.z < step->seqs ? run_of<kPends>(step, blockIdx.z) : Run{};
  const bool works = blockIdx.z < step->seqs && s.active && s.rows <= c.few;
  const bool there = column < d.value_dim;
  const uint32_t of_state = head * d.value_dim + column;
  if (kPends) depend();
  LaneBits<kI16, N> bits;
  bits.ask(d.states, begins_in(s), of_state, part, works && there && !s.fresh);
  float state[N][4];
  bits.get(state);
  if (!kPends) depend();  // the state is that of an earlier step
  if (!works) return;
  const uint32_t slot = part_number(s.first, blockIdx.z, kChunk), units = d.key_dim / 8;
  const uint64_t keys = (uint64_t{slot} * d.key_heads + head / (d.value_heads / d.key_heads)) * kChunk * d.key_dim;
  const uint64_t values = (uint64_t{slot} * d.value_heads + head) * c.slices() + (there ? column : 0) / kSlice;
  char* v = reinterpret_cast<char*>(c.v + values * (kChunk * kSlice)) + column % 8 * 2;
  for (uint32_t i = 0; i < s.rows; ++i) {
    uint16_t* value = reinterpret_cast<uint16_t*>(v + tile_at<kSlice / 8>(i, column % kSlice / 8));
    const float2 gate = gates(d, s.first + i, head);
    float key[N][4], query[N][4], dot = 0, out = 0;
    const float wanted = bf16_bits(*value);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const uint32_t first = first_key<kI16, N>(n, part);
      load_keys(reinterpret_cast<const char*>(c.k + keys), i, units, first, key[n]);
      load_keys(reinterpret_cast<const char*>(c.q + keys), i, units, first, query[n]);
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        state[n][j] *= gate.y;
        dot = fmaf(state[n][j], key[n][j], dot);
      }
    }
#pragma unroll
    for (int o = 1; o < 8; o *= 2) dot += __shfl_xor_sync(kAll, dot, o);
    const float delta = gate.x * (wanted - dot);
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        state[n][j] = fmaf(key[n][j], delta, state[n][j]);
        out = fmaf(state[n][j], query[n][j], out);
      }
    }
#pragma unroll
    for (int o = 1; o < 8; o *= 2) out += __shfl_xor_sync(kAll, out, o);
    if (there && part == 0) *value = __bfloat16_as_ushort(__float2bfloat16_rn(out));
  }
  if (s.pends) return;
  bits.put(state);
  bits.write(d.states, s.write, of_state, part, there);
}

template <int N, bool kPends>
auto walk_of(const Chunks& c) {
  return c.d.states.i16 ? walk_few<N, kPends, true> : walk_few<N, kPends, false>;
}
template <int N>
auto walk_of(const Chunks& c) {
  return c.pends() ? walk_of<N, true>(c) : walk_of<N, false>(c);
}

}  // namespace

swy_status record_few(const Recording& r, const Chunks& c) {
  if (c.few == 0) return SWY_OK;
  const dim3 grid(ceil_div(c.d.value_dim, kThreads / 32 * kColumns), c.d.value_heads, r.bucket().seqs);
  const auto kernel = c.d.key_dim == 32 ? walk_of<1>(c) : c.d.key_dim == 64 ? walk_of<2>(c) : walk_of<4>(c);
  return launch(r, kernel, grid, kThreads, 0, c, r.list.step);
}

}  // namespace gpu
