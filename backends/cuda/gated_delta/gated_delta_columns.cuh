// SPDX-License-Identifier: Apache-2.0
// What a block of 256 threads has of a value head of one sequence: 32 columns of its state, and the channels that they
// depend on. Shared by the kernels that apply rows to the state in registers (gated_delta_step.cu,
// gated_delta_stands.cu).
#pragma once

#include "gated_delta.cuh"
#include "gated_delta_step.h"

namespace gpu {

constexpr uint32_t kColumnThreads = 256, kColumns = kHeadPart, kMostTaps = 4;
constexpr uint32_t kRowsAtOnce = 4;  // that stand

// Shared memory for some rows.
template <int N, uint32_t kRows>
struct ColumnRows {
  float mixed[kRows][2 * 32 * N + kColumns];  // q, k, and these columns of v, after the convolution
  float sums[kRows][24];                      // of each warp: squares of q and k, and of the output
  float2 gate[kRows];
};

// Where a block's columns are. `rank`: of the `blocks` that share a key head.
struct ColumnPlace {
  uint32_t key_head, blocks, rank, head, slice, column;  // slice: of the head; column: of this thread

  __device__ ColumnPlace(const Delta& d, uint32_t slices) {
    const uint32_t per_key = d.value_heads / d.key_heads;
    blocks = per_key * slices;
    key_head = blockIdx.x / blocks, rank = blockIdx.x % blocks;
    head = key_head * per_key + rank / slices, slice = rank % slices;
    column = slice * kColumns + threadIdx.x / 32 * 4 + threadIdx.x % 32 / 8;
  }
};

// A warp has four columns of the state, a lane some groups of four keys of one of them (gated_delta_state.cuh). N:
// groups of 32 keys. kI16: states of 16 bits; then the keys of `mixed` lie at place_of_key.
template <int N, bool kI16>
struct Columns {
  static constexpr int kChannels = (2 * 32 * N + kColumns + kColumnThreads - 1) / kColumnThreads;  // of a thread
  static constexpr uint32_t kNone = 0xffffffffu;

  bool there;  // this thread's column
  LaneBits<kI16, N> bits;
  float state[N][4];
  // q and k of the key head, then the columns of v. Taps and inputs are aligned to the newest: missing ones are zero.
  uint32_t channel[kChannels], tap[kChannels][kMostTaps];  // tap: plain_bits_at
  float old[kChannels][kMostTaps - 1];                     // the inputs before the next row

  // Requests all that only earlier steps write.
  __device__ Columns(const Delta& d, const Sequence& s, bool active, const ColumnPlace& place) {
    const uint32_t dim = d.key_dim, taps = d.kernel;
    const uint64_t missing = kMostTaps - taps;
    there = active && place.column < d.value_dim;
    bits.ask(d.states, s.read, place.head * d.value_dim + place.column, threadIdx.x % 8, there && !s.fresh);
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      const uint32_t j = i * kColumnThreads + threadIdx.x;
      channel[i] = j < dim       ? place.key_head * dim + j
                   : j < 2 * dim ? d.keys() + place.key_head * dim + j - dim
                                 : 2 * d.keys() + place.head * d.value_dim + place.slice * kColumns + j - 2 * dim;
      const uint32_t width = 2 * dim + min(kColumns, d.value_dim - place.slice * kColumns);
      if (j >= width || !active) channel[i] = kNone;
#pragma unroll
      for (uint32_t t = 0; t < kMostTaps; ++t) {
        tap[i][t] = 0;
        if (t + 1 < kMostTaps) old[i][t] = 0;
        if (channel[i] == kNone || t + taps < kMostTaps) continue;
        tap[i][t] = plain_bits_at(d.conv, uint64_t{channel[i]} * taps - missing + t);
        if (t + 1 == kMostTaps || s.fresh) continue;
        old[i][t] = d.conv_state[(s.read * d.channels() + channel[i]) * (taps - 1) - missing + t];
      }
    }
  }

  // The state as numbers: waits for it.
  __device__ void take_state() { bits.get(state); }

  // Where k, and then the columns of v, begin in a row's `mixed`.
  static __device__ uint32_t keys_at(const Delta& d) { return kI16 ? 32 * N : d.key_dim; }
  static __device__ uint32_t values_at(const Delta& d) { return 2 * keys_at(d); }
  static __device__ uint32_t mixed_at(const Delta& d, uint32_t j) {
    if (!kI16) return j;
    const uint32_t dim = d.key_dim;
    return j < dim       ? place_of_key<kI16, N>(j)
           : j < 2 * dim ? keys_at(d) + place_of_key<kI16, N>(j - dim)
                         : values_at(d) + j - 2 * dim;
  }

  // silu of the convolution of channel i over `window`, into a row's `mixed`; adds its square to that of q or of k.
  __device__ void mix(const Delta& d, int i, const float* window, float* mixed, float& of_q, float& of_k) const {
    const uint32_t j = i * kColumnThreads + threadIdx.x, dim = d.key_dim;
    float sum = 0;
#pragma unroll
    for (uint32_t t = 0; t < kMostTaps; ++t) sum = fmaf(window[t], plain_of(d.conv, tap[i][t]), sum);
    const float u = quick_silu(sum);
    mixed[mixed_at(d, j)] = u;
    if (j < dim) of_q = fmaf(u, u, of_q);
    if (j >= dim && j < 2 * dim) of_k = fmaf(u, u, of_k);
  }

  // Applies one row to the state. kOut: returns the output of this thread's column, in all lanes that share it.
  template <bool kOut>
  __device__ float apply(const Delta& d, const float* mixed, const float* sums, float2 gate) {
    const uint32_t dim = d.key_dim, part = threadIdx.x % 8;
    float total_q = 0, total_k = 0;
#pragma unroll
    for (int w = 0; w < 8; ++w) total_q += sums[w], total_k += sums[8 + w];
    const float scale_q = rsqrtf(total_q + d.l2_eps) * rsqrtf(static_cast<float>(dim));
    const float scale_k = rsqrtf(total_k + d.l2_eps);
    const float v = there ? mixed[values_at(d) + threadIdx.x / 8] : 0.0f;
    // With s the state's column before the row, the output is q (exp(g) s + k delta): computes its three products at
    // once.
    float key[N][4], of_key = 0, of_query = 0, both = 0;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const uint32_t i = n * 32 + part * 4;
      const bool in = first_key<kI16, N>(n, part) < dim;
      const float4 k = in ? *reinterpret_cast<const float4*>(mixed + keys_at(d) + i) : make_float4(0, 0, 0, 0);
      const float4 q = in && kOut ? *reinterpret_cast<const float4*>(mixed + i) : make_float4(0, 0, 0, 0);
      const float query[4] = {q.x, q.y, q.z, q.w};
      key[n][0] = k.x, key[n][1] = k.y, key[n][2] = k.z, key[n][3] = k.w;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        of_key = fmaf(state[n][j], key[n][j], of_key);
        if (kOut) of_query = fmaf(state[n][j], query[j], of_query);
        if (kOut) both = fmaf(key[n][j], query[j], both);
      }
    }
#pragma unroll
    for (int x = 1; x < 8; x *= 2) {
      of_key += __shfl_xor_sync(kAll, of_key, x);
      if (kOut) of_query += __shfl_xor_sync(kAll, of_query, x);
      if (kOut) both += __shfl_xor_sync(kAll, both, x);
    }
    const float delta = gate.x * (v - gate.y * scale_k * of_key) * scale_k;  // times the key as it is in shared memory
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) state[n][j] = fmaf(key[n][j], delta, gate.y * state[n][j]);
    }
    return kOut ? scale_q * fmaf(gate.y, of_query, delta * both) : 0.0f;
  }

  __device__ void store(const Delta& d, const Sequence& s, const ColumnPlace& place) {
    bits.put(state);
    bits.write(d.states, s.write, place.head * d.value_dim + place.column, threadIdx.x % 8, there);
  }

  // Applies the rows that stand. All threads of the block must call this.
  template <uint32_t kRows>
  __device__ void apply_standing(const Delta& d, const Run& s, uint32_t head, const GateWeights& gate_of,
                                 ColumnRows<N, kRows>& m);
};

template <int N, bool kI16>
template <uint32_t kRows>
__device__ inline void Columns<N, kI16>::apply_standing(const Delta& d, const Run& s, uint32_t head,
                                                        const GateWeights& gate_of, ColumnRows<N, kRows>& m) {
  static_assert(kRows >= kRowsAtOnce);
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll 1
  for (uint32_t done = 0; done < s.kept; done += kRowsAtOnce) {
    const uint32_t rows = min(kRowsAtOnce, s.kept - done);
    float newest[kRowsAtOnce][kChannels];
#pragma unroll
    for (uint32_t r = 0; r < kRowsAtOnce; ++r) {
#pragma unroll
      for (int i = 0; i < kChannels; ++i) {
        newest[r][i] = r < rows && channel[i] != kNone ? d.pending_row(s.read, done + r)[channel[i]] : 0.0f;
      }
    }
    if (warp == kColumnThreads / 32 - 1) {  // it has the fewest channels
      const float2 of = pending_gates(d, gate_of, d.pending_row(s.read, done + min(lane, rows - 1)), head);
      if (lane < kRowsAtOnce) m.gate[lane] = of;
    }
    float squares[2][kRowsAtOnce] = {};  // of q, of k
#pragma unroll
    for (uint32_t r = 0; r < kRowsAtOnce; ++r) {
      if (r >= rows) continue;
#pragma unroll
      for (int i = 0; i < kChannels; ++i) {
        if (channel[i] == kNone) continue;
        const float window[kMostTaps] = {old[i][0], old[i][1], old[i][2], newest[r][i]};
        mix(d, i, window, m.mixed[r], squares[0][r], squares[1][r]);
        old[i][0] = old[i][1], old[i][1] = old[i][2], old[i][2] = newest[r][i];
      }
    }
#pragma unroll
    for (uint32_t r = 0; r < kRowsAtOnce; ++r) {
#pragma unroll
      for (uint32_t k = 0; k < 2; ++k) {
        const float sum = warp_sum(squares[k][r]);
        if (lane == 0) m.sums[r][8 * k + warp] = sum;
      }
    }
    __syncthreads();
#pragma unroll 1
    for (uint32_t r = 0; r < rows; ++r) apply<false>(d, m.mixed[r], m.sums[r], m.gate[r]);
    __syncthreads();
  }
}

}  // namespace gpu
