// GATED_DELTA where every sequence has one row, of several sequences: the whole step in one kernel, on Hopper.
//
// A block serves one value head of one sequence and holds its state in shared memory. The copy engine brings it, asked
// before the kernels in front have ended: a slot is written by earlier steps only; and it takes the new state away. So
// three blocks keep 192 KB of a multiprocessor on the way, whatever their threads do. A warp works on columns of its
// own, from one copy to the other. The blocks of a key head form a cluster: all have read the old inputs of the
// convolution before one of them writes the new ones.
#include "copy_engine.cuh"
#include "gated_delta.cuh"

namespace gpu {
namespace {

constexpr uint32_t kThreads = 256, kWarps = kThreads / 32, kBlocks = 3;  // of a multiprocessor
constexpr uint32_t kMostDim = 128, kMostTaps = 4, kMostCluster = 8;
constexpr uint32_t kPerThread = (3 * kMostDim + kThreads - 1) / kThreads;  // channels
constexpr uint32_t kNone = 0xffffffffu;
// From so many sequences on it is faster than gated_delta.step.
constexpr uint32_t kFewest = 4;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// What a block keeps beside the state.
struct Head {
  float mixed[3 * kMostDim];  // q and k of the key head, v of the value head; after the convolution
  float out[kMostDim];
  float squares[3][kWarps];  // of q, k and the output
  uint64_t come[kWarps];     // each warp's columns
};

// The convolution of this thread's channels.
struct Inputs {
  uint32_t channel[kPerThread];                                     // of qkv; kNone: nothing to do
  float window[kPerThread][kMostTaps], tap[kPerThread][kMostTaps];  // the newest last

  __device__ Inputs(const Delta& d, const Sequence& s, uint32_t head) {
    const uint32_t dim = d.key_dim, taps = d.kernel, key_head = head / (d.value_heads / d.key_heads);
#pragma unroll
    for (uint32_t i = 0; i < kPerThread; ++i) {
      const uint32_t j = i * kThreads + threadIdx.x;
      const uint32_t c = j < dim       ? key_head * dim + j
                         : j < 2 * dim ? d.keys() + key_head * dim + j - dim
                                       : 2 * d.keys() + head * d.value_dim + j - 2 * dim;
      channel[i] = s.active && j < 2 * dim + d.value_dim ? c : kNone;
#pragma unroll
      for (uint32_t back = 0; back < kMostTaps; ++back) {
        float &x = window[i][kMostTaps - 1 - back], &w = tap[i][kMostTaps - 1 - back];
        x = w = 0;
        if (channel[i] == kNone || back >= taps) continue;
        w = plain_at(d.conv, uint64_t{c} * taps + taps - 1 - back);
        if (back > 0 && !s.fresh) x = d.conv_state[(s.read * d.channels() + c) * (taps - 1) + taps - 1 - back];
      }
    }
  }
  // To `m`: silu(convolution), and each warp's squares of q and k.
  __device__ void mix(const Delta& d, const Sequence& s, Head& m) {
    float squares[2] = {0, 0};
#pragma unroll
    for (uint32_t i = 0; i < kPerThread; ++i) {
      const uint32_t j = i * kThreads + threadIdx.x;
      if (channel[i] == kNone) continue;
      window[i][kMostTaps - 1] = d.qkv[uint64_t{s.first} * d.channels() + channel[i]];
      float sum = 0;
#pragma unroll
      for (uint32_t t = 0; t < kMostTaps; ++t) sum = fmaf(window[i][t], tap[i][t], sum);
      const float u = silu(sum);
      m.mixed[j] = u;
      if (j < d.key_dim) squares[0] = fmaf(u, u, squares[0]);
      if (j >= d.key_dim && j < 2 * d.key_dim) squares[1] = fmaf(u, u, squares[1]);
    }
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const float sum = warp_sum(squares[i]);
      if (threadIdx.x % 32 == 0) m.squares[i][threadIdx.x / 32] = sum;
    }
  }
  // Those of q and k by the first value head of a key head, those of v by each.
  __device__ void keep(const Delta& d, const Sequence& s, bool first) const {
#pragma unroll
    for (uint32_t i = 0; i < kPerThread; ++i) {
      if (channel[i] == kNone || (channel[i] < 2 * d.keys() && !first)) continue;
      float* to = d.conv_state + (s.write * d.channels() + channel[i]) * (d.kernel - 1);
#pragma unroll
      for (uint32_t back = 0; back + 1 < kMostTaps; ++back) {
        if (back + 1 < d.kernel) to[d.kernel - 2 - back] = window[i][kMostTaps - 1 - back];
      }
    }
  }
};

__device__ inline float over_lanes(float x) {  // of one column
#pragma unroll
  for (int o = 1; o < 8; o *= 2) x += __shfl_xor_sync(kAll, x, o);
  return x;
}

// The rule on columns [first, end) of `states`, by a warp, four at a time: eight lanes per column, each with N groups
// of four keys. Writes the output to `m`; returns this lane's share of its squares.
template <int N>
__device__ float walk(const Delta& d, bool fresh, float2 gate, uint32_t first, uint32_t end, float* states, Head& m) {
  const uint32_t lane = threadIdx.x % 32, part = lane % 8, dim = d.key_dim;
  float sums[2] = {0, 0};
#pragma unroll
  for (uint32_t w = 0; w < kWarps; ++w) sums[0] += m.squares[0][w], sums[1] += m.squares[1][w];
  const float scale_q = rsqrtf(sums[0] + d.l2_eps) * rsqrtf(static_cast<float>(dim));
  const float scale_k = rsqrtf(sums[1] + d.l2_eps);
  float key[N][4], query[N][4], both = 0, squares = 0;
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t i = n * 32 + part * 4 + j;
      query[n][j] = i < dim ? m.mixed[i] * scale_q : 0.0f;
      key[n][j] = i < dim ? m.mixed[dim + i] * scale_k : 0.0f;
      both = fmaf(query[n][j], key[n][j], both);
    }
  }
  both = over_lanes(both);
  if (!fresh) barrier_wait(shared_at(&m.come[threadIdx.x / 32]), 0);
  for (uint32_t four = first; four < end; four += 4) {
    const uint32_t column = four + lane / 8;
    const bool there = column < end;
    float4* at = reinterpret_cast<float4*>(states + column * dim) + part;
    float state[N][4], dot_k = 0, dot_q = 0;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const bool in = there && !fresh && n * 32 + part * 4 < dim;
      const float4 v = in ? at[n * 8] : make_float4(0, 0, 0, 0);
      state[n][0] = v.x, state[n][1] = v.y, state[n][2] = v.z, state[n][3] = v.w;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        dot_k = fmaf(state[n][j], key[n][j], dot_k);
        dot_q = fmaf(state[n][j], query[n][j], dot_q);
      }
    }
    dot_k = over_lanes(dot_k);
    dot_q = over_lanes(dot_q);
    const float delta = there ? gate.x * (m.mixed[2 * dim + column] - gate.y * dot_k) : 0.0f;
    const float o = fmaf(both, delta, gate.y * dot_q);  // what the new state gives for q
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) state[n][j] = fmaf(key[n][j], delta, state[n][j] * gate.y);
      if (there && n * 32 + part * 4 < dim) at[n * 8] = make_float4(state[n][0], state[n][1], state[n][2], state[n][3]);
    }
    if (there && part == 0) {
      m.out[column] = o;
      squares = fmaf(o, o, squares);
    }
  }
  return squares;
}

#endif

// blockIdx.x: value head; blockIdx.y: sequence. N: groups of 32 keys.
template <int N>
__global__ void __launch_bounds__(kThreads, kBlocks)
    delta_batch(const __grid_constant__ Delta d, uint32_t columns, const swy_step* step) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) float states[];  // [value_dim, key_dim]
  __shared__ __align__(16) Head m;
  const uint32_t head = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t first = min(warp * columns, d.value_dim), end = min(first + columns, d.value_dim);  // of this warp
  const Sequence s = blockIdx.y < step->seqs ? sequence_of(step, blockIdx.y) : Sequence{};
  const uint32_t bytes = (end - first) * d.key_dim * 4;
  const uint64_t slot = uint64_t{d.values()} * d.key_dim;
  const uint64_t at = (uint64_t{head} * d.value_dim + first) * d.key_dim;
  if (lane == 0 && s.active && !s.fresh) {
    const uint32_t come = shared_at(&m.come[warp]);
    barrier_init(come, 1);
    publish_barriers();
    barrier_expect(come, bytes);
    if (bytes > 0) {
      copy_in(shared_at(states + first * d.key_dim), d.rule_state + s.read * slot + at, bytes, come);
    }
  }
  Inputs inputs(d, s, head);
  const GateWeights gate_of = gate_weights(d, head);
  const float norm = threadIdx.x < d.value_dim ? plain_at(d.norm, threadIdx.x) : 0.0f;
  touch(d);
  release_next();
  depend();
  const uint64_t to = uint64_t{s.first} * d.values() + head * d.value_dim + threadIdx.x;
  if (!s.active) {
    if (s.rows > 0 && threadIdx.x < d.value_dim) d.y[to] = 0;
    return;  // as do all blocks of the cluster
  }
  const float z = threadIdx.x < d.value_dim ? d.z[to] : 0.0f;
  const float2 gate = gates(d, gate_of, s.first, head);
  inputs.mix(d, s, m);
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
  inputs.keep(d, s, head % (d.value_heads / d.key_heads) == 0);
  const float squares = warp_sum(walk<N>(d, s.fresh, gate, first, end, states, m));
  stores_visible_to_copies();
  __syncwarp();
  if (lane == 0) {
    if (bytes > 0) copy_out(d.rule_state + s.write * slot + at, shared_at(states + first * d.key_dim), bytes);
    m.squares[2][warp] = squares;
  }
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (uint32_t w = 0; w < kWarps; ++w) sum += m.squares[2][w];
  const float scale = rsqrtf(sum / static_cast<float>(d.value_dim) + d.norm_eps);
  if (threadIdx.x < d.value_dim) d.y[to] = m.out[threadIdx.x] * scale * norm * silu(z);
  if (lane == 0) copies_out_read();  // shared memory stays until then
#endif
}

uint32_t cluster_of(const swy_gated_delta_attrs& a) { return a.value_heads / a.key_heads; }

template <int N>
swy_status record_batch(const Recording& r, const Delta& d) {
  const uint32_t columns = ceil_div(d.value_dim, kWarps * 4) * 4;  // of a warp
  return launch_clusters(r, delta_batch<N>, cluster_of(r.attrs<swy_gated_delta_attrs>()),
                         dim3(d.value_heads, r.bucket().seqs), kThreads, sizeof(float) * d.value_dim * d.key_dim, d,
                         columns, r.list.step);
}

swy_status record(const Recording& r) {
  const Delta d = delta_of(r);
  return d.key_dim <= 32 ? record_batch<1>(r, d) : d.key_dim <= 64 ? record_batch<2>(r, d) : record_batch<4>(r, d);
}

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  if ((bucket.flags & SWY_BUCKET_DECODE) == 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_FLAGS, "serves steps with one row per sequence");
  }
  if (!is_hopper(device)) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "needs clusters of blocks (compute capability 9.0)");
  }
  if (a.key_dim % 4 != 0 || a.key_dim > kMostDim || a.value_dim > kMostDim || a.conv_kernel > kMostTaps ||
      cluster_of(a) > kMostCluster) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "key_dim %u (a multiple of 4), value_dim %u, kernel %u, %u value heads per key head; at most "
                     "%u, %u, %u and %u",
                     a.key_dim, a.value_dim, a.conv_kernel, cluster_of(a), kMostDim, kMostDim, kMostTaps, kMostCluster);
  }
  return SWY_OK;
}

// Beside that of gated_delta.step, which moves the same bytes.
double cost(const swy_op& op, const swy_bucket& bucket) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  const double bytes = row_bytes(op) + 8.0 * a.value_heads * a.key_dim * a.value_dim * bucket.seqs;
  return cost_of(bytes, 0) * (bucket.seqs < kFewest ? 1.1 : 0.9);
}

// Sums up in another order than the kernels for prompts.
constexpr Kernel kKernels[] = {
    {"gated_delta.batch", SWY_OP_GATED_DELTA, kAlways, SWY_F32, supports, cost, nullptr, record}};

}  // namespace

std::span<const Kernel> gated_delta_batch_kernels() { return kKernels; }

}  // namespace gpu
