// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA where every sequence has one row, or up to four: the whole step in one kernel, on Hopper.
//
// A cluster of blocks serves one key head of one sequence: its value heads, each divided into slices of 32 columns. A
// warp keeps four columns of the state in registers, and requests them before the previous kernels have ended: only
// earlier steps write a slot. All blocks of a cluster have read the old inputs of the convolution before one of them
// writes the new ones, and they share the sums for the norm.
//
// If the reader of the result applies the norm's factor (kRaw), the blocks are no cluster: the device has no room for
// 16 clusters beside another kernel, and the last one would begin late. Then the last block that has read the shared
// inputs writes them. The gate, and the norm's weights, are applied here, where each element is computed once; every
// block of the reader would compute all of them.
//
// Several rows of a sequence share the state in the registers and the weights of the convolution. Everything that does
// not depend on the state is computed for all rows at once; the state then takes one row after the other.
#include <cooperative_groups.h>

#include "gated_delta.cuh"
#include "gated_delta_step.h"

namespace gpu {
namespace {

namespace cg = cooperative_groups;

constexpr uint32_t kThreads = 256, kSlice = kHeadPart, kMostCluster = 8, kMostTaps = 4, kMostRows = 4;

// blockIdx.x: key head * cluster size + block; blockIdx.y: sequence. N: groups of 32 keys. kRows: the most rows of a
// sequence. kRaw, with one row: 64 registers at most, so that two blocks, of two sequences, fit beside a projection's.
template <int N, bool kRaw, uint32_t kRows>
__global__ void __launch_bounds__(kRaw&& kRows == 1 ? 512 : kThreads, kRaw ? 2 : 1)
    delta_step(const __grid_constant__ Delta d, uint32_t slices, uint32_t* readers, const swy_step* step) {
#if __CUDA_ARCH__ >= 900
  __shared__ __align__(16) float mixed[kRows][2 * 32 * N + kSlice];  // q, k, and this slice of v
  __shared__ float scratch[kRows][24], out[kRows][kSlice], shared_squares[kRows];
  __shared__ float2 shared_gate[kRows];
  Stamps stamps(kStampDelta);
  const uint32_t per_key = d.value_heads / d.key_heads, blocks = per_key * slices;
  const uint32_t key_head = blockIdx.x / blocks, rank = blockIdx.x % blocks;
  const uint32_t head = key_head * per_key + rank / slices, slice = rank % slices;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = lane % 8;
  const uint32_t column = slice * kSlice + warp * 4 + lane / 8;
  const uint32_t keys = d.keys(), dim = d.key_dim, channels = d.channels(), taps = d.kernel;
  const bool valid = blockIdx.y < step->seqs;
  const Sequence s = valid ? sequence_of(step, blockIdx.y) : Sequence{};
  const bool active = valid && s.active, there = active && column < d.value_dim;
  const auto has = [&](uint32_t r) { return active && (kRows == 1 || r < s.rows); };
  const uint64_t at = (uint64_t{head} * d.value_dim + column) * dim;
  const uint64_t slot = uint64_t{d.values()} * dim;
  float state[N][4];
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const uint32_t k = n * 32 + part * 4;
    const bool in = there && k < dim && !s.fresh;
    const float4 v =
        in ? __ldcs(reinterpret_cast<const float4*>(d.rule_state + s.read * slot + at + k)) : make_float4(0, 0, 0, 0);
    state[n][0] = v.x, state[n][1] = v.y, state[n][2] = v.z, state[n][3] = v.w;
  }
  // Channels of this thread: q and k of the key head, then the slice of v.
  constexpr int kChannels = (2 * 32 * N + kSlice + kThreads - 1) / kThreads;
  float old[kChannels][kMostTaps];
  uint32_t channel[kChannels], tap[kChannels][kMostTaps];  // taps: plain_bits_at
#pragma unroll
  for (int i = 0; i < kChannels; ++i) {
    const uint32_t j = i * kThreads + threadIdx.x;
    channel[i] = j < dim       ? key_head * dim + j
                 : j < 2 * dim ? keys + key_head * dim + j - dim
                               : 2 * keys + head * d.value_dim + slice * kSlice + j - 2 * dim;
    const uint32_t width = 2 * dim + min(kSlice, d.value_dim - slice * kSlice);
    if (j >= width || !active) channel[i] = 0xffffffffu;
#pragma unroll
    for (uint32_t t = 0; t < kMostTaps; ++t) {
      old[i][t] = 0, tap[i][t] = 0;
      if (channel[i] == 0xffffffffu || t >= taps) continue;
      tap[i][t] = plain_bits_at(d.conv, uint64_t{channel[i]} * taps + t);
      if (t + 1 < taps && !s.fresh) old[i][t] = d.conv_state[(s.read * channels + channel[i]) * (taps - 1) + t];
    }
  }
  const GateWeights gate_of = gate_weights(d, head);
  const bool writes = kRaw && there && part == 0;
  const uint32_t norm_bits = writes ? plain_bits_at(d.norm, column) : 0;
  stamps.note(kAsked);
  release_next();
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  float newest[kRows][kChannels], z[kRows];  // loaded before the gates are computed
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) {
    const uint64_t row = s.first + r;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      const bool in = channel[i] != 0xffffffffu && (r == 0 || has(r));
      newest[r][i] = in ? d.qkv[row * channels + channel[i]] : 0.0f;
    }
    z[r] = writes && (r == 0 || has(r)) ? d.z[row * d.values() + head * d.value_dim + column] : 0.0f;
  }
  // One warp each: the first warp has the most channels, the last one the fewest. A lane has a row.
  if (warp == kThreads / 32 - 1 && active) {
    const float2 of = gates(d, gate_of, kRows == 1 ? s.first : s.first + min(lane, s.rows - 1), head);
    if (lane < kRows) shared_gate[lane] = of;
  }
  float squares[2][kRows] = {};  // of q, of k
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) {
    if (r != 0 && !has(r)) continue;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      const uint32_t j = i * kThreads + threadIdx.x;
      if (channel[i] == 0xffffffffu) continue;
      float sum = 0;
#pragma unroll
      for (uint32_t t = 0; t < kMostTaps; ++t) {
        if (r != 0 && t + 1 < kMostTaps && t + 1 < taps) old[i][t] = old[i][t + 1];
        if (t + 1 == taps) old[i][t] = newest[r][i];
        if (t < taps) sum = fmaf(old[i][t], plain_of(d.conv, tap[i][t]), sum);
      }
      const float u = quick_silu(sum);
      mixed[r][j] = u;
      if (j < dim) squares[0][r] = fmaf(u, u, squares[0][r]);
      if (j >= dim && j < 2 * dim) squares[1][r] = fmaf(u, u, squares[1][r]);
    }
  }
  // Writes the new inputs: this block's own, of v; and those of q and k once all blocks of the key head have read the
  // old ones.
  const auto keep_inputs = [&](bool own) {
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      const uint32_t j = i * kThreads + threadIdx.x;
      if (channel[i] == 0xffffffffu || (j >= 2 * dim) != own) continue;
      float* to = d.conv_state + (s.write * channels + channel[i]) * (taps - 1);
#pragma unroll
      for (uint32_t t = 1; t < kMostTaps; ++t) {
        if (t < taps) to[t - 1] = old[i][t];
      }
    }
  };
  stamps.note(kRead);
  // All sums over the block at once.
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) {
#pragma unroll
    for (uint32_t k = 0; k < 2; ++k) {
      const float sum = warp_sum(squares[k][r]);
      if (lane == 0) scratch[r][8 * k + warp] = sum;
    }
  }
  __syncthreads();
  uint32_t before = 0;  // how many blocks have read; this block has used what it read, or it would not be here
  if (kRaw && threadIdx.x == 0) before = atomicAdd(readers + blockIdx.y * d.key_heads + key_head, 1u);
  if (kRaw) keep_inputs(true);
  stamps.note(kArrived);
  float o[kRows] = {};
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) {
    if (r != 0 && !has(r)) continue;
    float total_q = 0, total_k = 0;
#pragma unroll
    for (int w = 0; w < 8; ++w) total_q += scratch[r][w], total_k += scratch[r][8 + w];
    const float scale_q = rsqrtf(total_q + d.l2_eps) * rsqrtf(static_cast<float>(dim));
    const float scale_k = rsqrtf(total_k + d.l2_eps);
    const float v = there ? mixed[r][2 * dim + warp * 4 + lane / 8] : 0.0f;
    const float2 gate = active ? shared_gate[r] : make_float2(0, 0);
    // With s the state's column before the row, the output is q (exp(g) s + k delta): computes its three products at
    // once.
    float key[N][4], of_key = 0, of_query = 0, both = 0;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const uint32_t i = n * 32 + part * 4;
      const bool in = i < dim;
      const float4 k = in ? *reinterpret_cast<const float4*>(mixed[r] + dim + i) : make_float4(0, 0, 0, 0);
      const float4 q = in ? *reinterpret_cast<const float4*>(mixed[r] + i) : make_float4(0, 0, 0, 0);
      const float query[4] = {q.x, q.y, q.z, q.w};
      key[n][0] = k.x, key[n][1] = k.y, key[n][2] = k.z, key[n][3] = k.w;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        of_key = fmaf(state[n][j], key[n][j], of_key);
        of_query = fmaf(state[n][j], query[j], of_query);
        both = fmaf(key[n][j], query[j], both);
      }
    }
#pragma unroll
    for (int x = 1; x < 8; x *= 2) {
      of_key += __shfl_xor_sync(kAll, of_key, x);
      of_query += __shfl_xor_sync(kAll, of_query, x);
      both += __shfl_xor_sync(kAll, both, x);
    }
    const float delta = gate.x * (v - gate.y * scale_k * of_key) * scale_k;  // times the key as it is in shared memory
    o[r] = scale_q * fmaf(gate.y, of_query, delta * both);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const uint32_t i = n * 32 + part * 4;
#pragma unroll
      for (int j = 0; j < 4; ++j) state[n][j] = fmaf(key[n][j], delta, gate.y * state[n][j]);
      if (there && i < dim && (r + 1 == kRows || !has(r + 1))) {
        __stcs(reinterpret_cast<float4*>(d.rule_state + s.write * slot + at + i),
               make_float4(state[n][0], state[n][1], state[n][2], state[n][3]));
      }
    }
  }
  stamps.note(kMultiplied);
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) {
    if (kRaw && part == 0 && valid && r < s.rows && column < d.value_dim) {
      d.y[uint64_t{s.first + r} * d.values() + head * d.value_dim + column] =
          there ? o[r] * plain_of(d.norm, norm_bits) * quick_silu(z[r]) : 0.0f;
    }
    float sum = there && part == 0 ? o[r] * o[r] : 0.0f;
    sum += __shfl_xor_sync(kAll, sum, 8);
    sum += __shfl_xor_sync(kAll, sum, 16);
    if (lane == 0) scratch[r][16 + warp] = sum;
    if (!kRaw && part == 0) out[r][warp * 4 + lane / 8] = there ? o[r] : 0.0f;
  }
  __shared__ bool last;
  if (kRaw && threadIdx.x == 0) last = before + 1 == blocks;
  __syncthreads();
  const uint32_t summed = threadIdx.x - 32;  // the second warp's first threads have a row each
  const auto sum_of_row = [&] {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < 8; ++w) sum += scratch[summed][16 + w];
    return sum;
  };
  if constexpr (kRaw) {
    if (summed < kRows && valid && summed < s.rows) {
      const uint32_t parts = head_parts(d.value_dim);
      float* to = d.squares + (uint64_t{s.first + summed} * d.value_heads + head) * parts;
      to[slice] = sum_of_row();
      for (uint32_t i = slices; slice == 0 && i < parts; ++i) to[i] = 0;
    }
    if (last) keep_inputs(false);
    if (last && threadIdx.x == 0) readers[blockIdx.y * d.key_heads + key_head] = 0;
    stamps.end();
    return;
  }
  if (summed < kRows) shared_squares[summed] = sum_of_row();
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  keep_inputs(true);
  if (rank == 0) keep_inputs(false);
  const uint32_t r = threadIdx.x / kSlice, mine = slice * kSlice + threadIdx.x % kSlice;
  if (r < kRows) {
    float sum = 0;
    for (uint32_t b = 0; b < slices; ++b) {
      sum += *cluster.map_shared_rank(&shared_squares[r], rank / slices * slices + b);
    }
    if (valid && r < s.rows && mine < d.value_dim) {
      const uint64_t to = uint64_t{s.first + r} * d.values() + head * d.value_dim + mine;
      const float scale = rsqrtf(sum / static_cast<float>(d.value_dim) + d.norm_eps);
      d.y[to] = active ? out[r][threadIdx.x % kSlice] * scale * plain_at(d.norm, mine) * silu(d.z[to]) : 0.0f;
    }
  }
  cluster.sync();  // no block exits while another reads its shared memory
#endif
}

uint32_t slices_of(const swy_gated_delta_attrs& a) { return (a.value_dim + kSlice - 1) / kSlice; }
uint32_t cluster_of(const swy_gated_delta_attrs& a) { return a.value_heads / a.key_heads * slices_of(a); }

// The most rows of a sequence.
uint32_t sequence_rows(const swy_bucket& bucket) { return (bucket.flags & SWY_BUCKET_DECODE) != 0 ? 1 : bucket.rows; }

template <int N, bool kRaw, uint32_t kRows>
swy_status record_step(const Recording& r, const Delta& d) {
  const auto& a = r.attrs<swy_gated_delta_attrs>();
  uint32_t* readers = nullptr;  // [sequences, key heads]
  if (kRaw) {
    readers = take_counters(r.list, r.bucket().seqs * a.key_heads, r.error);
    if (readers == nullptr) return SWY_UNSUPPORTED;  // the message has been set already
  }
  return launch_clusters(r, delta_step<N, kRaw, kRows>, kRaw ? 1 : cluster_of(a),
                         dim3(a.key_heads * cluster_of(a), r.bucket().seqs), kThreads, 0, d, slices_of(a), readers,
                         r.list.step);
}

template <bool kRaw, uint32_t kRows>
swy_status record_rows(const Recording& r, const Delta& d) {
  return d.key_dim <= 32   ? record_step<1, kRaw, kRows>(r, d)
         : d.key_dim <= 64 ? record_step<2, kRaw, kRows>(r, d)
                           : record_step<4, kRaw, kRows>(r, d);
}
template <bool kRaw>
swy_status record_delta(const Recording& r, const Delta& d) {
  const uint32_t rows = sequence_rows(r.bucket());
  if (rows == 1) return record_rows<kRaw, 1>(r, d);
  return rows > 2 ? record_rows<kRaw, kMostRows>(r, d) : record_rows<kRaw, 2>(r, d);
}

swy_status record(const Recording& r) { return record_delta<false>(r, delta_of(r)); }

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  return supports_delta_step(device, op, bucket, error);
}

double cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  const double bytes = row_bytes(op) + 8.0 * a.value_heads * a.key_dim * a.value_dim * bucket.seqs;
  return cost_of(device, bytes, 0) + 0.5 * (sequence_rows(bucket) - 1);
}

// Adds in another order than the kernels for prompts.
constexpr Kernel kKernels[] = {
    {"gated_delta.step", SWY_OP_GATED_DELTA, kAlways, SWY_F32, supports, cost, nullptr, record}};

}  // namespace

swy_status supports_delta_step(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  if (sequence_rows(bucket) > kMostRows) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_FLAGS,
                     "serves steps with one row per sequence, or of up to %u rows", kMostRows);
  }
  if (!is_hopper(device)) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "needs clusters of blocks (compute capability 9.0)");
  }
  if (a.key_dim % 4 != 0 || a.key_dim > 128 || a.conv_kernel > kMostTaps || cluster_of(a) > kMostCluster) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "key_dim %u, kernel %u, %u slices of value columns per key head; at most 128, %u and %u",
                     a.key_dim, a.conv_kernel, cluster_of(a), kMostTaps, kMostCluster);
  }
  return SWY_OK;
}

swy_status record_delta_raw(const Recording& r, const Delta& d) { return record_delta<true>(r, d); }

std::span<const Kernel> gated_delta_step_kernels() { return kKernels; }

}  // namespace gpu
