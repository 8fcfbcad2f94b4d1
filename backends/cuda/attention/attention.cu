// SPDX-License-Identifier: Apache-2.0
// ATTENTION over pages of keys and values (device_states.hpp has their layout), and ATTEND, its part after `prepare`.
//
//   prepare   (attention_prepare.cu) norms and rotates q and k, and appends k and v to the pages
//   attend    a block serves all query heads of one KV head for one row. Its warps divide the positions; each lane has
//             some elements of all heads, so every key and value is read once
//
// *.split divides the positions that a row reads among blocks, and the block that finishes last joins their results:
// for decoding. *.rows has one block per row and KV head, whose bits depend on the row alone.
#include "attention.cuh"

namespace gpu {
namespace {

constexpr uint32_t kWarps = 8, kThreads = kWarps * 32;

// The result of a warp, a block or a split for some positions. Per head: the largest score, the sum of weights, and the
// weighted sum of values, of which a lane has N elements.
template <int N>
struct Partial {
  float top[kHeads], sum[kHeads], value[kHeads][N];
};

// Scores of one key with the block's heads; every lane gets all of them.
template <int N>
__device__ inline void scores_of(const float (&q)[kHeads][N], const float (&k)[N], uint32_t heads, float (&s)[kHeads]) {
#pragma unroll
  for (uint32_t h = 0; h < kHeads; ++h) {
    float dot = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) dot = fmaf(q[h][i], k[i], dot);
    s[h] = h < heads ? dot : 0;
  }
  // Each step halves the number of heads that a lane sums up, until four lanes have one head.
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll
  for (int d = 16, n = kHeads / 2; d >= 4; d /= 2, n /= 2) {
    const bool upper = (lane & d) != 0;
#pragma unroll
    for (int h = 0; h < n; ++h) {
      const float keep = upper ? s[h + n] : s[h], give = upper ? s[h] : s[h + n];
      s[h] = keep + __shfl_xor_sync(kAll, give, d);
    }
  }
  float mine = s[0];
  mine += __shfl_xor_sync(kAll, mine, 2);
  mine += __shfl_xor_sync(kAll, mine, 1);
#pragma unroll
  for (uint32_t h = 0; h < kHeads; ++h) s[h] = __shfl_sync(kAll, mine, h * 4);
}

template <int N>
__device__ inline void accumulate(Partial<N>& p, const float (&s)[kHeads], const float (&v)[N]) {
#pragma unroll
  for (uint32_t h = 0; h < kHeads; ++h) {
    if (s[h] > p.top[h]) {
      const float shrink = __expf(p.top[h] - s[h]);
      p.sum[h] *= shrink;
#pragma unroll
      for (int i = 0; i < N; ++i) p.value[h][i] *= shrink;
      p.top[h] = s[h];
    }
    const float weight = __expf(s[h] - p.top[h]);
    p.sum[h] += weight;
#pragma unroll
    for (int i = 0; i < N; ++i) p.value[h][i] = fmaf(weight, v[i], p.value[h][i]);
  }
}

// This lane's elements of the key and the value of a position.
template <class T, int N>
__device__ inline void load_position(const Attention& a, const swy_step* step, const uint32_t* table, uint32_t kv,
                                     uint32_t position, float (&k)[N], float (&v)[N]) {
  const uint32_t first = threadIdx.x % 32 * N, size = step->page_size;
  const T* key = kv_at<T>(a, step, table, kv, position) + first;
  load_kv<N>(key, k);
  load_kv<N>(key + uint64_t{size} * a.head_dim, v);
  if constexpr (sizeof(T) == 1) {
    const float* scale = a.bytes.scale(a.pages, table[position / size], a.bytes.row(kv, false, position % size));
#pragma unroll
    for (int i = 0; i < N; ++i) k[i] *= scale[0], v[i] *= scale[size];
  }
}

// Positions first + warp, first + warp + kWarps, … of [first, last).
template <class T, int N>
__device__ inline void attend_positions(const Attention& a, const swy_step* step, const uint32_t* table, uint32_t kv,
                                        const float (&q)[kHeads][N], uint32_t heads, uint32_t first, uint32_t last,
                                        Partial<N>& p) {
  constexpr int kAhead = N == 8 ? 2 : 4;
  const uint32_t lane = threadIdx.x % 32, dim = a.head_dim;
  const bool in = lane * N < dim;
  for (uint32_t at = first + threadIdx.x / 32; at < last; at += kWarps * kAhead) {
    float k[kAhead][N], v[kAhead][N];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const uint32_t position = at + j * kWarps;
#pragma unroll
      for (int i = 0; i < N; ++i) k[j][i] = v[j][i] = 0;
      if (position >= last || !in) continue;
      load_position<T, N>(a, step, table, kv, position, k[j], v[j]);
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (at + j * kWarps >= last) break;
      float s[kHeads];
      scores_of<N>(q, k[j], heads, s);
      accumulate<N>(p, s, v[j]);
    }
  }
}

// Joins the warps of a block: afterwards thread t has element t % head_dim, … of head h in `shared`, as
// [kHeads][head_dim] sums, and top and sum per head.
template <int N>
__device__ inline void join_warps(const Partial<N>& p, uint32_t dim, float* values, float* tops, float* sums) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __shared__ float top[kWarps][kHeads], sum[kWarps][kHeads];
  if (lane == 0) {
#pragma unroll
    for (uint32_t h = 0; h < kHeads; ++h) top[warp][h] = p.top[h], sum[warp][h] = p.sum[h];
  }
  __syncthreads();
  for (uint32_t w = 0; w < kWarps; ++w) {
    if (warp == w) {
#pragma unroll
      for (uint32_t h = 0; h < kHeads; ++h) {
        float best = top[0][h];
        for (uint32_t o = 1; o < kWarps; ++o) best = fmaxf(best, top[o][h]);
        const float share = p.top[h] == -INFINITY ? 0.0f : __expf(p.top[h] - best);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          if (lane * N + i >= dim) continue;
          float* to = values + h * dim + lane * N + i;
          *to = (w == 0 ? 0.0f : *to) + p.value[h][i] * share;
        }
        if (lane != 0) continue;
        sums[h] = (w == 0 ? 0.0f : sums[h]) + sum[w][h] * share;
        tops[h] = best;
      }
    }
    __syncthreads();
  }
}

// blockIdx.x: split; blockIdx.y: KV head and group of query heads; blockIdx.z: row.
template <class T, int N, bool kSplit>
__global__ void __launch_bounds__(kThreads, 1) attend(const __grid_constant__ Attention a, const swy_step* step) {
  extern __shared__ float shared_heads[];  // [kHeads][head_dim], then tops and sums
  const uint32_t dim = a.head_dim, lane = threadIdx.x % 32, row = blockIdx.z;
  const uint32_t kv = blockIdx.y / a.groups, first_head = kv * a.per_kv() + blockIdx.y % a.groups * kHeads;
  const uint32_t heads = min(kHeads, (kv + 1) * a.per_kv() - first_head);
  depend();
  release_next();
  if (row >= step->rows) return;
  const uint32_t seq = step_array<uint32_t>(step, step->row_seq_at)[row];
  const bool active = step_array<uint32_t>(step, step->seq_active_at)[seq] != 0;
  const uint32_t context = active ? step_array<uint32_t>(step, step->row_position_at)[row] + 1 : 0;
  const uint32_t begin = first_read(a, context), count = context - begin;
  const uint32_t per_split = kSplit ? split_positions(count) : max(count, 1u);
  const uint32_t splits = max((count + per_split - 1) / per_split, 1u);
  if (blockIdx.x >= splits) return;
  float q[kHeads][N];
#pragma unroll
  for (uint32_t h = 0; h < kHeads; ++h) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const uint32_t e = lane * N + i;
      q[h][i] = h < heads && e < dim ? ready_of(a, row, first_head + h)[e] * a.late_scale : 0.0f;
    }
  }
  Partial<N> p;
#pragma unroll
  for (uint32_t h = 0; h < kHeads; ++h) {
    p.top[h] = -INFINITY;
    p.sum[h] = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) p.value[h][i] = 0;
  }
  const uint32_t first = begin + blockIdx.x * per_split, last = min(context, first + per_split);
  attend_positions<T, N>(a, step, table_of(step, seq), kv, q, heads, first, last, p);
  float *tops = shared_heads + kHeads * dim, *sums = tops + kHeads;
  join_warps<N>(p, dim, shared_heads, tops, sums);
  give_out(a, row, first_head, heads, kSplit ? splits : 1, active, shared_heads);
}

template <class T, int N, bool kSplit>
swy_status record_attend(const Recording& r, const Attention& a, uint32_t rows) {
  const uint32_t floats = kHeads * (a.head_dim + 2), weights = kSplit ? kHeads * a.splits : 0;
  const size_t shared = (floats > weights ? floats : weights) * sizeof(float);
  return launch(r, attend<T, N, kSplit>, dim3(kSplit ? a.splits : 1, a.kv_heads * a.groups, rows), kThreads, shared, a,
                r.list.step);
}

template <class T, bool kSplit>
swy_status record_with(const Recording& r, const Attention& a, uint32_t rows) {
  if (a.head_dim <= 64) return record_attend<T, 2, kSplit>(r, a, rows);
  return a.head_dim <= 128 ? record_attend<T, 4, kSplit>(r, a, rows) : record_attend<T, 8, kSplit>(r, a, rows);
}

template <bool kSplit>
swy_status record(const Recording& r) {
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "q").dims[0]);
  const Attention a = attention_of(r, kSplit);
  if (kSplit && a.counters == nullptr) return SWY_UNSUPPORTED;  // the message has been set already
  if (r.op.id == SWY_OP_ATTENTION) SWY_CUDA_TRY(record_prepare(r, a, rows));
  return a.kv_type == SWY_I8     ? record_with<int8_t, kSplit>(r, a, rows)
         : a.kv_type == SWY_BF16 ? record_with<uint16_t, kSplit>(r, a, rows)
                                 : record_with<float, kSplit>(r, a, rows);
}

swy_status supports_rows(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  const auto& a = attention_attrs(op);
  const uint32_t elements = a.head_dim <= 64 ? 2 : a.head_dim <= 128 ? 4 : 8;  // per lane
  SWY_CUDA_TRY(supports_kv(device, op, error));
  if (a.head_dim <= 256 && a.head_dim % elements == 0 && a.rotary_dim <= kMostRotary && bucket.rows <= 65535)
    return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "head_dim is %u; it must be a multiple of %u, at most 256",
                   a.head_dim, elements);
}
swy_status supports_split(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  if (bucket.rows > 64) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "takes at most 64 rows, the bucket has %u", bucket.rows);
  }
  return supports_rows(device, op, bucket, error);
}

double cost_rows(const swy_device&, const swy_op& op, const swy_bucket& bucket) {
  const double context = most_read(op, bucket);
  return 25 + 0.15 * context + 0.002 * bucket.rows * context;  // one block walks through what a row reads
}
double cost_split(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  const auto& a = attention_attrs(op);
  const double context = most_read(op, bucket);
  const double rows = 2.0 * bucket.rows * context * a.kv_heads;  // keys and values
  return 40 + 0.02 * context + device.rates.bytes(rows * kv_row_bytes(device, a.head_dim), 1.0e6);
}

template <bool kSplit>
uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket& bucket) {
  return attention_workspace(op, bucket, kSplit);
}

constexpr Kernel split_kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kAlways,
          .activations = SWY_BF16,
          .supports = supports_split,
          .cost = cost_split,
          .workspace = workspace<true>,
          .record = record<true>,
          .op_revision = 2};
}
constexpr Kernel rows_kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kInvariant,
          .activations = SWY_BF16,
          .supports = supports_rows,
          .cost = cost_rows,
          .workspace = workspace<false>,
          .record = record<false>,
          .op_revision = 2};
}
constexpr Kernel kKernels[] = {
    split_kernel("attention.split", SWY_OP_ATTENTION),
    rows_kernel("attention.rows", SWY_OP_ATTENTION),
    split_kernel("attend.split", SWY_OP_ATTEND),
    rows_kernel("attend.rows", SWY_OP_ATTEND),
};

uint32_t most_splits(uint32_t context) {
  uint32_t most = 1;
  for (const uint32_t c : {context, context < 4096 ? context : 4096, context < 16384 ? context : 16384}) {
    const uint32_t n = ceil_div(c, split_positions(c));
    most = n > most ? n : most;
  }
  return most;
}

// Parts of the workspace.
void place(Attention& a, Arena& arena, const swy_op& op, uint32_t rows) {
  const swy_attention_attrs at = attention_attrs(op);
  if (op.id == SWY_OP_ATTENTION) a.ready = arena.take<float>(uint64_t{rows} * at.heads * at.head_dim);
  if (a.splits == 0) return;
  a.parts = arena.take<float>(uint64_t{rows} * at.kv_heads * groups_of(at) * a.splits * kHeads * (at.head_dim + 2));
}

}  // namespace

Attention attention_of(const Recording& r, bool split) {
  const swy_attention_attrs at = attention_attrs(r.op);
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "q").dims[0]);
  const bool whole = r.op.id == SWY_OP_ATTENTION;
  Attention a{};
  a.q = r.operands.input("q");
  a.k = r.operands.input("k");
  a.v = r.operands.input("v");
  a.pages = r.operands.state<void>("kv");
  a.y = r.operands.output("y");
  a.q_norm = r.operands.weight("q_norm");
  a.k_norm = r.operands.weight("k_norm");
  a.heads = at.heads;
  a.kv_heads = at.kv_heads;
  a.head_dim = at.head_dim;
  a.rotary = at.rotary_dim;
  a.groups = groups_of(at);
  a.scale = at.scale;
  a.eps = at.norm_eps;
  a.bias = at.norm_weight_bias;
  a.gated = whole && at.gated != 0;
  a.kv_type = kv_type_of(r.device());
  a.bytes = BytePages(at.kv_heads, at.head_dim, r.bucket().page_size);
  a.alone = (r.bucket().flags & SWY_BUCKET_DECODE) != 0;
  if (whole) take_rotation(r, at.rotary_dim, at.rope_theta, at.rope_scale, a);
  a.normed = at.qk_norm != 0;
  a.sinks = r.operands.bias("sinks");
  a.window = at.window != 0 ? at.window : kNoWindow;
  a.late_scale = whole ? 1 : at.scale;
  a.splits = split ? most_splits(most_read(r.op, r.bucket())) : 0;
  Arena arena(r.operands.workspace());
  if (!whole) a.ready = r.operands.input("q");
  place(a, arena, r.op, rows);
  if (split) a.counters = take_counters(r.list, rows * a.kv_heads * a.groups, r.error);
  return a;
}

uint64_t attention_workspace(const swy_op& op, const swy_bucket& bucket, bool split) {
  Arena arena(nullptr);
  Attention a{};
  a.splits = split ? most_splits(most_read(op, bucket)) : 0;
  place(a, arena, op, bucket.rows);
  return arena.used();
}

std::span<const Kernel> attention_kernels() { return kKernels; }

}  // namespace gpu
