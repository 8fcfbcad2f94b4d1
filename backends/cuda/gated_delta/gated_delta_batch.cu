// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA for several sequences with one row each: the whole step in one kernel, from 9.0 on.
//
// A block serves one value head of one sequence and holds its state in shared memory. The copy engine brings the state,
// requested before the previous kernels have ended (only earlier steps write a slot), and takes the new state away. So
// three blocks keep 192 KB per multiprocessor in transfer, whatever their threads do. A warp owns some columns from one
// copy to the other. The blocks of a key head form a cluster: all have read the old inputs of the convolution before
// one of them writes the new ones.
//
// Pending rows that stand are applied first, while the previous kernels run: only earlier steps write them, too. A row
// that stays pending does not change the state in shared memory.
#include "gated_delta_batch.h"

#include "common/clusters.cuh"
#include "common/pin.cuh"
#include "gated_delta_step.h"

namespace gpu {
namespace {

constexpr uint32_t kThreads = 256, kBlocks = 3;  // of a multiprocessor
constexpr uint32_t kTaps = 4, kMostDim = 128, kMostCluster = 8;
// From this many sequences on it is faster than gated_delta.step.
constexpr uint32_t kFewest = 4;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

constexpr uint32_t kWarps = kThreads / 32;
constexpr uint32_t kPerThread = (3 * kMostDim + kThreads - 1) / kThreads;  // channels
constexpr uint32_t kNone = 0xffffffffu;

// A block's shared memory besides the state.
struct Head {
  float mixed[3 * kMostDim];  // q and k of the key head, v of the value head; after the convolution
  float out[kMostDim];
  float squares[3][kWarps];  // of q, k and the output
  float2 gate;
  uint64_t come[kWarps];  // each warp's columns
};

__device__ inline uint32_t cluster_number() {
  uint32_t x;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(x));
  return x;
}

// sequence_of for a decoding step, in which row i mostly belongs to sequence i; beyond the step's sequences an inactive
// one. A block cannot request its state before it knows this. nvcc 13.0 makes it wait for memory three times: for the
// header, for `likely`, and for the other words. Forms that wait twice are slower (docs/evidence/cuda-delta-stream.md).
__device__ inline Sequence decoding_sequence(const swy_step* step, uint32_t seq) {
  const uint32_t seqs = step->seqs, at = min(seq, max(seqs, 1u) - 1);
  const uint32_t* start = step_array<uint32_t>(step, step->row_start_at);
  const uint32_t* position = step_array<uint32_t>(step, step->row_position_at);
  uint32_t likely = position[min(at, max(step->rows, 1u) - 1)];
  uint32_t read = step_array<uint32_t>(step, step->seq_read_slot_at)[at];
  const uint32_t write = step_array<uint32_t>(step, step->seq_write_slot_at)[at];
  const uint32_t active = step_array<uint32_t>(step, step->seq_active_at)[at];
  const uint32_t first = start[at], rows = start[at + 1] - first;
  pin(likely), pin(read);
  if (seq >= seqs) return {};
  const bool fresh = rows > 0 && (first == at ? likely : position[first]) == 0;
  return {first, rows, read, write, active != 0 && rows > 0, fresh};
}

// The taps of a channel as bits in memory: a conversion would wait for them and hold up later loads.
struct Taps {
  uint2 first, second;  // bf16: all in `first`

  __device__ void ask(const Weight& w, uint32_t channel) {
    const bool wide = w.dtype == SWY_F32;
    const uint2* at = reinterpret_cast<const uint2*>(w.data) + (wide ? 2 * uint64_t{channel} : channel);
    first = at[0];
    second = wide ? at[1] : make_uint2(0, 0);
  }
  __device__ float4 get(const Weight& w) const {
    return w.dtype == SWY_F32 ? make_float4(__uint_as_float(first.x), __uint_as_float(first.y),
                                            __uint_as_float(second.x), __uint_as_float(second.y))
                              : make_float4(bf16_bits(first.x), __uint_as_float(first.x & 0xffff0000u),
                                            bf16_bits(first.y), __uint_as_float(first.y & 0xffff0000u));
  }
};

// The convolution of this thread's channels: of q and k, one after the other, then of v.
template <uint32_t kDim>
struct Inputs {
  uint32_t channel[kPerThread];     // of qkv; kNone: nothing to do
  float window[kPerThread][kTaps];  // the newest last
  Taps taps[kPerThread];

  __device__ Inputs(const Delta& d, const Sequence& s, uint32_t key_head, uint32_t head) {
#pragma unroll
    for (uint32_t i = 0; i < kPerThread; ++i) {
      const uint32_t j = i * kThreads + threadIdx.x;
      const uint32_t c = j < kDim       ? key_head * kDim + j
                         : j < 2 * kDim ? d.keys() + key_head * kDim + j - kDim
                                        : 2 * d.keys() + head * d.value_dim + j - 2 * kDim;
      channel[i] = s.active && j < 2 * kDim + d.value_dim ? c : kNone;
      if (channel[i] == kNone) continue;
      const float* old = d.conv_state + (s.read * d.channels() + c) * (kTaps - 1);
#pragma unroll
      for (uint32_t t = 0; t + 1 < kTaps; ++t) window[i][t] = s.fresh ? 0.0f : old[t];
      taps[i].ask(d.conv, c);
    }
  }
  __device__ void ask_row(const float* row) {
#pragma unroll
    for (uint32_t i = 0; i < kPerThread; ++i) {
      if (channel[i] != kNone) window[i][kTaps - 1] = row[channel[i]];
    }
  }
  __device__ void advance() {
#pragma unroll
    for (uint32_t i = 0; i < kPerThread; ++i) {
#pragma unroll
      for (uint32_t t = 0; t + 1 < kTaps; ++t) window[i][t] = window[i][t + 1];
    }
  }
  // Stores silu(convolution) and each warp's sums of squares of q and k in `m`.
  __device__ void mix(const Delta& d, Head& m) {
    float squares[2] = {0, 0};
#pragma unroll
    for (uint32_t i = 0; i < kPerThread; ++i) {
      const uint32_t j = i * kThreads + threadIdx.x;
      if (channel[i] == kNone) continue;
      const float4 tap = taps[i].get(d.conv);
      const float u =
          silu(fmaf(window[i][3], tap.w, fmaf(window[i][2], tap.z, fmaf(window[i][1], tap.y, window[i][0] * tap.x))));
      m.mixed[j] = u;
      if (j < kDim) squares[0] = fmaf(u, u, squares[0]);
      if (j >= kDim && j < 2 * kDim) squares[1] = fmaf(u, u, squares[1]);
    }
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const float sum = warp_sum(squares[i]);
      if (threadIdx.x % 32 == 0) m.squares[i][threadIdx.x / 32] = sum;
    }
  }
  // New inputs of the convolution: those of q and k are written by the first value head of a key head, those of v by
  // each. Of a row that stays pending they are kept beside the states.
  __device__ void keep(const Delta& d, const Run& s, bool first) const {
#pragma unroll
    for (uint32_t i = 0; i < kPerThread; ++i) {
      if (channel[i] == kNone || (channel[i] < 2 * d.keys() && !first)) continue;
      float* to = d.conv_state + (s.write * d.channels() + channel[i]) * (kTaps - 1);
#pragma unroll
      for (uint32_t t = 0; t + 1 < kTaps; ++t) to[t] = s.pends ? window[i][t] : window[i][t + 1];
      if (s.pends) d.pending_row(s.write, 0)[channel[i]] = window[i][kTaps - 1];
    }
  }
};

// One lane calls this. A new sequence has no old inputs to wait for.
__device__ inline void ask_state(const Sequence& s, const float* from, float* to, uint32_t bytes, uint64_t& barrier) {
  const uint32_t come = shared_at(&barrier);
  barrier_init(come, 1);
  publish_barriers();
  barrier_expect(come, s.fresh ? 0 : bytes);
  if (!s.fresh) copy_in(shared_at(to), from, bytes, come);
}

__device__ inline float over_lanes(float x) {  // of one column
#pragma unroll
  for (int o = 1; o < 8; o *= 2) x += __shfl_xor_sync(kAll, x, o);
  return x;
}
__device__ inline float over_warps(const float (&x)[kWarps]) {
  float sum = 0;
#pragma unroll
  for (uint32_t w = 0; w < kWarps; ++w) sum += x[w];
  return sum;
}
__device__ inline void take4(const float* from, float scale, float (&to)[4]) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  to[0] = v.x * scale, to[1] = v.y * scale, to[2] = v.z * scale, to[3] = v.w * scale;
}

// Applies the rule to `columns` columns of the state [columns, 32 N]. A warp does four at a time: eight lanes per
// column, each with N groups of four keys. `v` and `out`: of the first column. Returns this lane's share of the
// output's squares. A row that stands has no output; without `changes` the state stays as it is.
template <int N, bool kStands>
__device__ float walk(const Delta& d, const Head& m, uint32_t columns, float* states, const float* v, float* out,
                      bool changes) {
  const uint32_t lane = threadIdx.x % 32, part = lane % 8;
  const float scale_q = rsqrtf(over_warps(m.squares[0]) + d.l2_eps) * rsqrtf(32.0f * N);
  const float scale_k = rsqrtf(over_warps(m.squares[1]) + d.l2_eps);
  const float2 gate = m.gate;
  float key[N][4], query[N][4], both = 0, squares = 0;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    if (!kStands) take4(m.mixed + n * 32 + part * 4, scale_q, query[n]);
    take4(m.mixed + (N + n) * 32 + part * 4, scale_k, key[n]);
#pragma unroll
    for (int j = 0; !kStands && j < 4; ++j) both = fmaf(query[n][j], key[n][j], both);
  }
  both = over_lanes(both);
  barrier_wait(shared_at(&m.come[threadIdx.x / 32]), 0);
  for (uint32_t column = lane / 8; column < columns; column += 4) {
    float4* at = reinterpret_cast<float4*>(states + column * (32 * N)) + part;
    float state[N][4], dot_k = 0, dot_q = 0;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      take4(reinterpret_cast<const float*>(at + n * 8), gate.y, state[n]);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        dot_k = fmaf(state[n][j], key[n][j], dot_k);
        if (!kStands) dot_q = fmaf(state[n][j], query[n][j], dot_q);
      }
    }
    dot_k = over_lanes(dot_k);
    if (!kStands) dot_q = over_lanes(dot_q);
    const float delta = gate.x * (v[column] - dot_k);
    const float o = fmaf(both, delta, dot_q);  // the new state times q
#pragma unroll
    for (int n = 0; changes && n < N; ++n) {
      at[n * 8] = make_float4(fmaf(key[n][0], delta, state[n][0]), fmaf(key[n][1], delta, state[n][1]),
                              fmaf(key[n][2], delta, state[n][2]), fmaf(key[n][3], delta, state[n][3]));
    }
    if (!kStands && part == 0) {
      out[column] = o;
      squares = fmaf(o, o, squares);
    }
  }
  return squares;
}

// Writes this thread's element of row `row` of the output, if `there`: column `column`. All threads of a block call it.
__device__ inline void put_output(const Delta& d, uint32_t row, uint32_t column, bool there, float v,
                                  float (&sums)[kWarps]) {
  if (d.few.words == nullptr) {
    if (there) d.y[uint64_t{row} * d.values() + column] = v;
    return;
  }
  const float up = few_up(column);
  const RoundedPair rounded(v * up, 0);
  const float sum = warp_sum(there ? rounded.low * (kFewUp / up) : 0.0f);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  const uint32_t eight = column / kFewGroup * d.few.eights + row / 8, i = column % 8;
  char* to = d.few.words + FewRows::place(eight, column / 8, row, i % 2 * 2 + i % 4 / 2) + i / 4 * 2;
  if (there) *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(rounded.bits);
  __syncthreads();
  if (!there || column % kFewGroup != 0) return;
  float* at = d.few.sums + FewRows::sum_place(eight, row);
  at[0] = at[2] = d.few.times * (sums[threadIdx.x / 32] + sums[threadIdx.x / 32 + 1]);
}

// Writes a head of row `row` as integers, and its squares, for a reader that applies the norm's factor. Threads pass
// elements; out [value_dim]. All threads of a block call it.
__device__ inline void put_head(const Delta& d, uint32_t row, uint32_t head, float v, float squares, float* out) {
  if (threadIdx.x < d.value_dim) out[threadIdx.x] = v;
  __syncthreads();
  const uint32_t warp = threadIdx.x / 32, parts = head_parts(d.value_dim);
  if (threadIdx.x < parts) {
    d.squares[(uint64_t{row} * d.value_heads + head) * parts + threadIdx.x] = threadIdx.x == 0 ? squares : 0.0f;
  }
  if (warp * kHalfGroup >= d.value_dim) return;
  const auto* from = reinterpret_cast<const float4*>(out + warp * kHalfGroup + threadIdx.x % 4 * 8);
  const float4 a = from[0], b = from[1];
  const float eight[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  put_half(d.heads, eight, row, d.values(), head * d.value_dim / kHalfGroup + warp);
}

#endif

// blockIdx.x: value head; blockIdx.y: sequence. N: groups of 32 keys. kPends: with pending rows.
template <int N, bool kPends>
__global__ void __launch_bounds__(kThreads, kBlocks)
    delta_batch(const __grid_constant__ Delta d, const swy_step* step) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) float states[];  // [value_dim, 32 N]
  __shared__ __align__(16) Head m;
  Stamps stamps(kStampDelta);
  const uint32_t rank = cluster_rank(), head = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t columns = d.value_dim / kWarps, first = warp * columns, bytes = columns * 32 * N * 4;  // of this warp
  const Run s = run_of<kPends>(step, blockIdx.y, decoding_sequence(step, blockIdx.y));
  float* mine = states + first * (32 * N);
  const uint64_t slot = uint64_t{d.values()} * (32 * N), at = (uint64_t{head} * d.value_dim + first) * (32 * N);
  if (lane == 0 && s.active) ask_state(s, d.rule_state + s.read * slot + at, mine, bytes, m.come[warp]);
  Inputs<32 * N> inputs(d, s, cluster_number(), head);
  const uint32_t norm = threadIdx.x < d.value_dim ? plain_bits_at(d.norm, threadIdx.x) : 0;
  const GateWeights gate_of = gate_weights(d, head);
  release_next();
  stamps.note(kAsked);
  stamps.take_place();
  const float* v = m.mixed + 2 * 32 * N + first;
  for (uint32_t r = 0; kPends && r < s.kept; ++r) {
    const float* row = d.pending_row(s.read, r);
    inputs.ask_row(row);
    if (warp == kWarps - 1) m.gate = pending_gates(d, gate_of, row, head);
    inputs.mix(d, m);
    __syncthreads();
    walk<N, true>(d, m, columns, mine, v, m.out + first, true);
    __syncthreads();
    inputs.advance();
  }
  depend();
  stamps.note(kWaited);
  const uint32_t column = head * d.value_dim + threadIdx.x;
  const bool there = threadIdx.x < d.value_dim;
  if (!s.active) {
    if (s.rows == 0) return;  // as do all blocks of the cluster
    if (d.squares != nullptr) {
      put_head(d, s.first, head, 0, 0, m.out);
    } else {
      put_output(d, s.first, column, there, 0, m.squares[0]);
    }
    return;
  }
  if (s.fresh) {
    for (uint32_t i = lane; i < columns * 8 * N; i += 32) reinterpret_cast<float4*>(mine)[i] = make_float4(0, 0, 0, 0);
  }
  const float z = there ? d.z[uint64_t{s.first} * d.values() + column] : 0.0f;
  inputs.ask_row(d.qkv + uint64_t{s.first} * d.channels());
  if (warp == kWarps - 1) m.gate = gates(d, gate_of, s.first, head);
  inputs.mix(d, m);
  stamps.note(kRead);
  // The old inputs have arrived: sums computed from them were stored.
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  __syncthreads();
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
  inputs.keep(d, s, rank == 0);
  if (kPends && s.pends && threadIdx.x < 2) {
    const float* from = threadIdx.x == 0 ? d.b : d.a;
    d.pending_row(s.write, 0)[d.channels() + threadIdx.x * d.value_heads + head] =
        from[uint64_t{s.first} * d.value_heads + head];
  }
  const float squares = warp_sum(walk<N, false>(d, m, columns, mine, v, m.out + first, !s.pends));
  stores_visible_to_copies();
  __syncwarp();
  if (lane == 0) {
    if (!s.pends || s.kept > 0 || s.moves()) copy_out(d.rule_state + s.write * slot + at, shared_at(mine), bytes);
    m.squares[2][warp] = squares;
  }
  __syncthreads();
  const float all = over_warps(m.squares[2]);
  const float y = there ? m.out[threadIdx.x] * plain_of(d.norm, norm) * silu(z) : 0.0f;
  if (d.squares != nullptr) {
    put_head(d, s.first, head, y, all, m.out);
  } else {
    const float scale = rsqrtf(all / static_cast<float>(d.value_dim) + d.norm_eps);
    put_output(d, s.first, column, there, y * scale, m.squares[0]);
  }
  stamps.note(kMultiplied);
  if (lane == 0) copies_out_read();  // shared memory stays until then
#endif
}

uint32_t cluster_of(const swy_gated_delta_attrs& a) { return a.value_heads / a.key_heads; }

template <int N>
swy_status record_batch(const Recording& r, const Delta& d) {
  return launch_clusters(r.with(FastMemory::shared),
                         d.pending != nullptr ? delta_batch<N, true> : delta_batch<N, false>,
                         cluster_of(r.attrs<swy_gated_delta_attrs>()), dim3(d.value_heads, r.bucket().seqs), kThreads,
                         sizeof(float) * d.value_dim * d.key_dim, d, r.list.step);
}

swy_status record(const Recording& r) { return record_delta_batch(r, delta_of(r)); }

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  if ((bucket.flags & SWY_BUCKET_DECODE) == 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_FLAGS, "serves steps with one row per sequence");
  }
  SWY_CUDA_TRY(needs_copy_engine(device, error));
  if ((a.key_dim != 32 && a.key_dim != 64 && a.key_dim != 128) || a.value_dim % 32 != 0 || a.value_dim > kMostDim ||
      a.conv_kernel != kTaps || cluster_of(a) > kMostCluster) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "key_dim %u, value_dim %u, kernel %u, %u value heads per key head; takes 32, 64 or 128, multiples "
                     "of 32 up to %u, %u and at most %u",
                     a.key_dim, a.value_dim, a.conv_kernel, cluster_of(a), kMostDim, kTaps, kMostCluster);
  }
  return SWY_OK;
}

// On top of gated_delta.step's estimate, which moves the same bytes.
double cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  const double bytes = row_bytes(op) + 8.0 * a.value_heads * a.key_dim * a.value_dim * bucket.seqs;
  return cost_of(device, bytes, 0) * (bucket.seqs < kFewest ? 1.1 : 0.9);
}

// Adds in another order than the kernels for prompts.
constexpr Kernel kKernels[] = {{.name = "gated_delta.batch",
                                .op = SWY_OP_GATED_DELTA,
                                .flags = kAlways,
                                .activations = SWY_F32,
                                .supports = supports,
                                .cost = cost,
                                .record = record,
                                .op_revision = 2}};

}  // namespace

swy_status supports_delta_batch(const swy_device& device, const swy_op& op, const swy_bucket& bucket,
                                swy_error* error) {
  SWY_CUDA_TRY(supports(device, op, bucket, error));
  const uint32_t dim = static_cast<const swy_gated_delta_attrs*>(op.attrs)->value_dim;
  if (dim % kFewGroup == 0) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "heads of %u values; multiples of %u can be rounded", dim,
                   kFewGroup);
}
double delta_batch_cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return cost(device, op, bucket);
}
swy_status record_delta_batch(const Recording& r, const Delta& d) {
  return d.key_dim == 32 ? record_batch<1>(r, d) : d.key_dim == 64 ? record_batch<2>(r, d) : record_batch<4>(r, d);
}

std::span<const Kernel> gated_delta_batch_kernels() { return kKernels; }

}  // namespace gpu
