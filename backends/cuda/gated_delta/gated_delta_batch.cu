// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA for several sequences with one row each: the whole step in one kernel, from 9.0 on.
//
// A block serves one value head of one sequence and holds its state in shared memory. The copy engine brings the state,
// requested before the previous kernels have ended (only earlier steps write a slot), and takes the new state away. So
// the blocks of a multiprocessor keep memory in transfer, whatever their threads do: 192 KB in fp32, 130 KB in 16 bits.
// The blocks of a key head form a cluster: all have read the old inputs of the convolution before one of them writes
// the new ones.
//
// Pending rows that stand are applied first, while the previous kernels run: only earlier steps write them, too. A row
// that stays pending does not change the state in shared memory.
#include "gated_delta_batch.h"

#include <type_traits>

#include "common/clusters.cuh"
#include "common/pin.cuh"
#include "gated_delta_step.h"

namespace gpu {
namespace {

constexpr uint32_t kThreads = 256;
// Of a multiprocessor. In fp32 no more than three find room; with pending rows four would lack registers. A list of few
// sequences has too few blocks for four; with registers for three, the query stays in them.
constexpr uint32_t blocks_of(bool i16, bool pends, bool few) { return i16 && !pends && !few ? 4 : 3; }
constexpr uint32_t kFewBlocks = 2;  // of a multiprocessor, of a list with few sequences
constexpr uint32_t kTaps = 4, kMostDim = 128, kMostCluster = 8;
// From this many sequences on it is faster than gated_delta.step.
constexpr uint32_t kFewest = 4;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

constexpr uint32_t kWarps = kThreads / 32;
constexpr uint32_t kNone = 0xffffffffu;

// A block's shared memory besides the state.
struct Head {
  // q and k of the key head, in the order of place_of_key, and v of the value head; after the convolution.
  float mixed[3 * kMostDim];
  float scales[kMostDim];  // of the state's columns
  float out[kMostDim];
  float squares[3][kWarps];  // of q, k and the output
  float2 gate;
  uint64_t come;
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
template <uint32_t kDim, bool kI16>
struct Inputs {
  static constexpr uint32_t kPerThread = (2 * kDim + kMostDim + kThreads - 1) / kThreads;  // channels

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
      const float sum =
          fmaf(window[i][3], tap.w, fmaf(window[i][2], tap.z, fmaf(window[i][1], tap.y, window[i][0] * tap.x)));
      const float u = quick_silu(sum);
      m.mixed[j < 2 * kDim ? place_of_key<kI16, kDim / 32>(j) : j] = u;
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

// The state of a head: `columns` columns, in the device's memory from column `first` of a slot on, and in shared
// memory.
template <bool kI16>
struct HeadState {
  const RuleStates& memory;
  uint32_t first, columns;
  char* elements;
  float* scales;
  uint32_t come;  // barrier: the state has arrived

  __device__ uint32_t bytes() const { return columns * memory.key_dim * (kI16 ? 2 : 4); }
  __device__ uint32_t scale_bytes() const { return kI16 ? columns * 4 : 0; }
  // One thread calls ask() and write(). A new sequence has no old state to wait for.
  __device__ void ask(const Sequence& s) const {
    barrier_init(come, 1);
    publish_barriers();
    barrier_expect(come, s.fresh ? 0 : bytes() + scale_bytes());
    if (s.fresh) return;
    copy_in(shared_at(elements), memory.column<kI16>(s.read, first), bytes(), come);
    if (kI16) copy_in(shared_at(scales), memory.scale(s.read, first), scale_bytes(), come);
  }
  __device__ void write(const Sequence& s) const {
    copy_out(memory.column<kI16>(s.write, first), shared_at(elements), bytes());
    if (kI16) copy_out(memory.scale(s.write, first), shared_at(scales), scale_bytes());
  }
  // All threads of the block call this.
  __device__ void clear() const {
    for (uint32_t i = threadIdx.x; i < bytes() / 16; i += kThreads) reinterpret_cast<uint4*>(elements)[i] = uint4{};
    if (kI16 && threadIdx.x < columns) scales[threadIdx.x] = 0;
  }
};

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

// A lane's part of a column in shared memory: N groups of four keys, as first_key has them, in pieces of 16 bytes
// (heads of 32 keys in 16 bits: 8).
template <int N, bool kI16>
struct Part {
  using Piece = std::conditional_t<kI16 && N == 1, uint2, uint4>;
  static constexpr int kWords = sizeof(Piece) / 4, kPieces = N * (kI16 ? 2 : 4) / kWords;
  Piece* at;  // and every eighth one after it

  __device__ Part(char* column, uint32_t part) : at(reinterpret_cast<Piece*>(column) + part) {}
  __device__ void get(float (&state)[N][4], float scale) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const Piece piece = at[i * 8];
      const auto* word = reinterpret_cast<const uint32_t*>(&piece);
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        const int e = (i * kWords + w) * (kI16 ? 2 : 1);
        if constexpr (kI16) {
          floats_of(word[w], scale, state[e / 4][e % 4], state[e / 4][e % 4 + 1]);
        } else {
          state[e / 4][e % 4] = __uint_as_float(word[w]);
        }
      }
    }
  }
  // Stores the state times `times`.
  __device__ void put(const float (&state)[N][4], float times) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      Piece piece;
      auto* word = reinterpret_cast<uint32_t*>(&piece);
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        const int e = (i * kWords + w) * (kI16 ? 2 : 1);
        if constexpr (kI16) {
          word[w] = bits_of(state[e / 4][e % 4], state[e / 4][e % 4 + 1], times);
        } else {
          word[w] = __float_as_uint(state[e / 4][e % 4] * times);
        }
      }
      at[i * 8] = piece;
    }
  }
};

// Applies the rule to this warp's columns of the state. It does four at a time: eight lanes per column, each with N
// groups of four keys. `out`: of all columns. Returns this lane's share of the output's squares. A row that stands has
// no output; without `changes` the state stays as it is. kAgain: the query is read again for each column, where
// registers have no room for it.
template <int N, bool kStands, bool kI16, bool kAgain>
__device__ float walk(const Delta& d, const Head& m, const HeadState<kI16>& head, float* out, bool changes) {
  const uint32_t lane = threadIdx.x % 32, part = lane % 8, columns = head.columns / kWarps;
  const float scale_q = rsqrtf(over_warps(m.squares[0]) + d.l2_eps) * rsqrtf(32.0f * N);
  const float scale_k = rsqrtf(over_warps(m.squares[1]) + d.l2_eps);
  // exp(g) multiplies what is stored, and the output: new state = decay * (state + key * change). Where it is below
  // 1e-20, nothing of the old state is left anyway.
  const float beta = m.gate.x, decay = m.gate.y < 1e-20f ? 1e-20f : m.gate.y, inverse_decay = 1.0f / decay;
  const float* query_at = m.mixed + part * 4;
  float key[N][4], query[N][4], both = 0, squares = 0;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    take4(m.mixed + (N + n) * 32 + part * 4, scale_k, key[n]);
    if (!kStands) take4(query_at + n * 32, 1.0f, query[n]);
#pragma unroll
    for (int j = 0; !kStands && j < 4; ++j) both = fmaf(query[n][j], key[n][j], both);
  }
  both = over_lanes(both);
  barrier_wait(head.come, 0);
  const uint32_t first = threadIdx.x / 32 * columns;
#pragma unroll 1
  for (uint32_t column = first + lane / 8; column < first + columns; column += 4) {
    const Part<N, kI16> mine(head.elements + column * (32 * N * (kI16 ? 2 : 4)), part);
    float state[N][4], dot_k = 0, dot_q = 0;
    mine.get(state, kI16 ? head.scales[column] : 0.0f);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (!kStands && kAgain) take4(query_at + n * 32, 1.0f, query[n]);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        dot_k = fmaf(state[n][j], key[n][j], dot_k);
        if (!kStands) dot_q = fmaf(state[n][j], query[n][j], dot_q);
      }
    }
    dot_k = over_lanes(dot_k);
    if (!kStands) dot_q = over_lanes(dot_q);
    const float change = beta * fmaf(m.mixed[2 * 32 * N + column], inverse_decay, -dot_k);
    if (changes) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) state[n][j] = fmaf(key[n][j], change, state[n][j]);
      }
      float times = decay;
      if constexpr (kI16) {
        const float scale = scale_of(largest_of(state) * decay);
        times *= inverse_of_power(scale);
        if (part == 0) head.scales[column] = scale;
      }
      mine.put(state, times);
    }
    if (!kStands && part == 0) {
      const float o = decay * scale_q * fmaf(both, change, dot_q);  // the new state times q
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
  constexpr uint32_t kParts = head_parts(kMostDim);  // of smaller heads, too
  const uint32_t warp = threadIdx.x / 32;
  if (threadIdx.x < kParts) {
    d.squares[(uint64_t{row} * d.value_heads + head) * kParts + threadIdx.x] = threadIdx.x == 0 ? squares : 0.0f;
  }
  if (warp * kHalfGroup >= d.value_dim) return;
  const auto* from = reinterpret_cast<const float4*>(out + warp * kHalfGroup + threadIdx.x % 4 * 8);
  const float4 a = from[0], b = from[1];
  const float eight[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  put_half(d.heads, eight, row, d.values(), head * d.value_dim / kHalfGroup + warp);
}

#endif

// blockIdx.x: value head; blockIdx.y: sequence. N: groups of 32 keys. kPends: with pending rows. kI16: of the states.
// kFew: for few sequences.
template <int N, bool kPends, bool kI16, bool kFew>
__global__ void __launch_bounds__(kThreads, blocks_of(kI16, kPends, kFew))
    delta_batch(const __grid_constant__ Delta d, const swy_step* step) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char elements[];  // [value_dim, 32 N]
  __shared__ __align__(16) Head m;
  constexpr bool kAgain = kI16 && !kFew;
  Stamps stamps(kStampDelta);
  const uint32_t rank = cluster_rank(), head = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Run s = run_of<kPends>(step, blockIdx.y, decoding_sequence(step, blockIdx.y));
  const HeadState<kI16> state{d.states, head * d.value_dim, d.value_dim, elements, m.scales, shared_at(&m.come)};
  if (threadIdx.x == 0 && s.active) state.ask(s);
  Inputs<32 * N, kI16> inputs(d, s, cluster_number(), head);
  const bool there = threadIdx.x < d.value_dim;
  const uint32_t norm = there ? plain_bits_at(d.norm, threadIdx.x) : 0;
  // Only the last warp, which has the fewest channels, computes the gates.
  const bool gates_here = warp == kWarps - 1;
  const GateWeights gate_of = gates_here ? gate_weights(d, head) : GateWeights{};
  release_next();
  stamps.note(kAsked);
  stamps.take_place();
  for (uint32_t r = 0; kPends && r < s.kept; ++r) {
    const float* row = d.pending_row(s.read, r);
    inputs.ask_row(row);
    if (gates_here) m.gate = pending_gates(d, gate_of, row, head);
    inputs.mix(d, m);
    __syncthreads();
    walk<N, true, kI16, false>(d, m, state, m.out, true);
    __syncthreads();
    inputs.advance();
  }
  depend();
  stamps.note(kWaited);
  const uint32_t column = head * d.value_dim + threadIdx.x;
  if (!s.active) {
    if (s.rows == 0) return;  // as do all blocks of the cluster
    if (d.squares != nullptr) {
      put_head(d, s.first, head, 0, 0, m.out);
    } else {
      put_output(d, s.first, column, there, 0, m.squares[0]);
    }
    return;
  }
  // The row is requested before anything waits for what was requested earlier.
  const float z = there ? d.z[uint64_t{s.first} * d.values() + column] : 0.0f;
  inputs.ask_row(d.qkv + uint64_t{s.first} * d.channels());
  if (s.fresh) state.clear();
  if (gates_here) m.gate = gates(d, gate_of, s.first, head);
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
  const float squares = warp_sum(walk<N, false, kI16, kAgain>(d, m, state, m.out, !s.pends));
  stores_visible_to_copies();
  if (lane == 0) m.squares[2][warp] = squares;
  __syncthreads();
  if (threadIdx.x == 0 && (!s.pends || s.kept > 0 || s.moves())) state.write(s);
  const float all = over_warps(m.squares[2]);
  const float y = there ? m.out[threadIdx.x] * plain_of(d.norm, norm) * quick_silu(z) : 0.0f;
  if (d.squares != nullptr) {
    put_head(d, s.first, head, y, all, m.out);
  } else {
    const float scale = rsqrtf(all / static_cast<float>(d.value_dim) + d.norm_eps);
    put_output(d, s.first, column, there, y * scale, m.squares[0]);
  }
  stamps.note(kMultiplied);
  if (threadIdx.x == 0) copies_out_read();  // shared memory stays until then
#endif
}

uint32_t cluster_of(const swy_gated_delta_attrs& a) { return a.value_heads / a.key_heads; }

template <int N, bool kI16>
swy_status record_form(const Recording& r, const Delta& d) {
  const uint32_t state = d.value_dim * d.key_dim * (kI16 ? sizeof(uint16_t) : sizeof(float));
  constexpr bool kHasFew = kI16;  // fp32 has three blocks at most, so it needs no instance for few sequences
  const bool few = r.bucket().seqs * d.value_heads <= kFewBlocks * static_cast<uint32_t>(r.device().processors);
  return launch_clusters(r.with(FastMemory::shared),
                         d.pending != nullptr ? delta_batch<N, true, kI16, false>
                         : few                ? delta_batch<N, false, kI16, kHasFew>
                                              : delta_batch<N, false, kI16, false>,
                         cluster_of(r.attrs<swy_gated_delta_attrs>()), dim3(d.value_heads, r.bucket().seqs), kThreads,
                         state, d, r.list.step);
}
template <int N>
swy_status record_batch(const Recording& r, const Delta& d) {
  return d.states.i16 ? record_form<N, true>(r, d) : record_form<N, false>(r, d);
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
  const double bytes = row_bytes(op) + state_bytes(device, op, bucket);
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
