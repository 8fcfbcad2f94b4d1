// ATTENTION of decoding steps, keys and values in bf16: one kernel, which also norms, rotates and appends.
//
// Clusters of blocks share out the positions of one sequence and KV head. A block walks through its positions in
// windows, whose keys and values lie in shared memory; those of the first one are asked for before the kernel in front
// has ended. Scores are products of 16 keys (the rows of a matrix instruction) and all query heads of the KV head (its
// columns), one warp per tile; then each warp sums up 32 elements of the values of all positions. Where heads are
// narrow, several teams of warps have windows of their own. At the end every block of a cluster joins one head: the
// others push what they know of it into its shared memory. With several clusters, the last one that comes joins them.
//
// How a row is cut depends on its position and on the list.
#include "attention_decode.cuh"

namespace gpu {
namespace {

// ---- the kernel

struct Barriers {
  uint64_t keys, values, keys_read, values_read;  // there, and read by all workers: window by window
  uint64_t pushed;
};

// The part of the warps that bring keys or values: all windows but the first, which was asked for before. x: the
// sequence's own key or value, if this block has its position; `bytes`: of the first window.
template <int N>
__device__ inline void bring_windows(const Share& share, bool values, const float (&x)[N], uint32_t bytes, char* memory,
                                     Barriers& barriers) {
  using F = Form<N>;
  const uint32_t lane = threadIdx.x % 32, own = share.context - 1;
  char* to = memory + (values ? F::kValues : 0);
  uint64_t* there = values ? &barriers.values : &barriers.keys;
  uint64_t* read = values ? &barriers.values_read : &barriers.keys_read;
  uint32_t parity = 1;
#pragma unroll 1
  for (uint32_t at = share.first; at < share.last; at += F::kPositions, parity ^= 1) {
    if (at != share.first) {
      barrier_wait(read, parity);
      bytes = bring<N>(share, at, values ? share.to_values() : 0, to, there);
      if (values && at + F::kPositions >= share.last) clear_values<N>(share.last - at, to);
    }
    if (at <= own && own < min(at + F::kPositions, share.last))
      store_packed<N>(to + (own - at) * F::kRow + lane * 2 * N, x);
    __syncwarp();
    if (lane == 0) barrier_expect(there, bytes);
  }
}

// The workers' part.
template <int N>
__device__ inline void walk(const Share& share, char* memory, float (*tops)[kHeads], Barriers& barriers, Sums& sums) {
  using F = Form<N>;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, team = warp / N;
  uint4 q[N];  // query head lane / 4
#pragma unroll
  for (int i = 0; i < N; ++i) {
    q[i] = *reinterpret_cast<const uint4*>(memory + F::kQueries + unit_at<N>(lane / 4, quad_unit(lane % 4, i)));
  }
  const char *keys = memory + team * F::kTiles * kTile * F::kRow, *values = keys + F::kValues;
  uint32_t parity = 0;
#pragma unroll 1
  for (uint32_t at = share.first; at < share.last; at += F::kPositions, parity ^= 1) {
    const uint32_t mine = at + team * F::kTiles * kTile, side = parity * F::kTeams * F::kTiles + team * F::kTiles;
    const uint32_t tiles = mine < share.last ? min((share.last - mine + kTile - 1) / kTile, F::kTiles) : 0;
    auto* weights = reinterpret_cast<float*>(memory + F::kWeights) + side * kHeads * kSpan;
    barrier_wait(&barriers.keys, parity);
#pragma unroll 1
    for (uint32_t i = warp % N; i < tiles; i += N) {
      weigh_tile<N>(keys + i * kTile * F::kRow, q, mine + i * kTile, share.last, weights + i * kHeads * kSpan,
                    tops[side + i]);
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(&barriers.keys_read);
    workers_meet();
    barrier_wait(&barriers.values, parity);
    add_values<N>(values, warp % N * 4, tiles, weights, tops[side], sums);
    __syncwarp();
    if (lane == 0) barrier_arrive(&barriers.values_read);
  }
}

// Finds what a block works on; false: nothing.
template <int N>
__device__ inline bool find_share(const Attention& a, const swy_step* step, uint32_t reach, uint32_t& clusters,
                                  Share& share) {
  using F = Form<N>;
  const uint32_t row = blockIdx.z, kv = blockIdx.y / a.groups, cluster = blockIdx.x / kCluster;
  if (row >= step->rows || cluster >= clusters_of(step->max_context, reach, a.splits)) return false;
  const uint32_t position = step_array<uint32_t>(step, step->row_position_at)[row];
  const uint32_t seq = step_array<uint32_t>(step, step->row_seq_at)[row];
  share.context = step_array<uint32_t>(step, step->seq_active_at)[seq] != 0 ? position + 1 : 0;
  clusters = clusters_of(share.context, reach, a.splits);
  if (cluster >= clusters) return false;
  share.table = table_of(step, seq);
  share.shift = __ffs(step->page_size) - 1;
  share.dim = F::kDim;
  share.page_elements = (a.kv_heads * 2 * F::kDim) << share.shift;
  share.pages = static_cast<uint16_t*>(a.pages) + uint64_t{kv} * ((2 * F::kDim) << share.shift);
  const uint32_t each = (share.context + clusters * kCluster * kTile - 1) / (clusters * kCluster * kTile) * kTile;
  share.first = min((cluster * kCluster + cluster_rank()) * each, share.context);
  share.last = min(share.first + each, share.context);
  return true;
}

// By one thread.
template <int N>
__device__ inline void begin_barriers(Barriers& barriers) {
  using F = Form<N>;
  barrier_begin(&barriers.keys, 1);
  barrier_begin(&barriers.values, 1);
  barrier_begin(&barriers.keys_read, kWarps);
  barrier_begin(&barriers.values_read, kWarps);
  barrier_begin(&barriers.pushed, 1);
  barriers_begun();
  barrier_expect(&barriers.pushed, F::kSources * (F::kDim + 2) * 4);
}

// Asks for the keys (or values) of the block's first window; returns the bytes that will come.
template <int N>
__device__ inline uint32_t bring_first(const Share& share, bool values, char* memory, Barriers& barriers) {
  using F = Form<N>;
  const uint32_t bytes = bring<N>(share, share.first, values ? share.to_values() : 0,
                                  memory + (values ? F::kValues : 0), values ? &barriers.values : &barriers.keys);
  if (values && share.last - share.first < F::kPositions) {
    clear_values<N>(share.last - share.first, memory + F::kValues);
  }
  return bytes;
}

// The workers' part, up to what other blocks are told.
template <int N>
__device__ inline void walk_and_push(const Share& share, char* memory, float (*tops)[kHeads], Barriers& barriers,
                                     uint32_t rank, uint32_t heads, float2* stats) {
  using F = Form<N>;
  const uint32_t warp = threadIdx.x / 32;
  Sums sums{};
  sums.top = -INFINITY;
  walk<N>(share, memory, tops, barriers, sums);
  auto* inbox = reinterpret_cast<float*>(memory + F::kInbox);
  push_sums<N>(sums, warp, rank * F::kTeams + warp / N, heads, inbox, stats, &barriers.pushed);
}

// The warps that bring keys or values: they append the sequence's own, x, if this block `appends`.
template <int N>
__device__ inline void append_and_bring(const Share& share, bool values, bool appends, const float (&x)[N],
                                        uint32_t bytes, char* memory, Barriers& barriers) {
  if (appends)
    store_packed<N>(share.key(share.context - 1) + (values ? share.to_values() : 0) + threadIdx.x % 32 * N, x);
  bring_windows<N>(share, values, x, bytes, memory, barriers);
}

// The query heads of a block's row and group, and their KV head, counted through all rows.
struct OwnHeads {
  uint32_t count;
  uint64_t query, kv;

  __device__ explicit OwnHeads(const Attention& a) {
    const uint32_t row = blockIdx.z, kv_head = blockIdx.y / a.groups;
    const uint32_t first = kv_head * a.per_kv() + blockIdx.y % a.groups * kHeads;
    count = min(kHeads, (kv_head + 1) * a.per_kv() - first);
    query = uint64_t{row} * a.heads + first, kv = uint64_t{row} * a.kv_heads + kv_head;
  }
};

// Element threadIdx.x of the block's head, once all blocks of the cluster have pushed what they know.
template <int N>
__device__ inline Known await_cluster(const char* memory, const float2* stats, Barriers& barriers) {
  barrier_wait(&barriers.pushed, 0);
  return join_cluster<N>(reinterpret_cast<const float*>(memory + Form<N>::kInbox), stats, threadIdx.x);
}

// blockIdx.x: cluster of the row, and block of it; blockIdx.y: KV head and group of query heads; blockIdx.z: row.
// reach: positions that a cluster takes before there is another one.
template <int N>
__global__ void __launch_bounds__(kThreads, 2)
    decode(const __grid_constant__ Attention a, uint32_t reach, const swy_step* step) {
  using F = Form<N>;
  extern __shared__ __align__(128) char memory[];
  __shared__ float2 turn[kMostRotary / 2], stats[F::kSources];
  __shared__ __align__(8) float tops[2 * F::kTeams * F::kTiles][kHeads];
  __shared__ Barriers barriers;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.z, rank = cluster_rank();
  const bool worker = warp < kWarps, values = warp == kWarps + 1;
  Stamps stamps(kStampAttention);
  release_next();
  if (threadIdx.x == 0) begin_barriers<N>(barriers);
  uint32_t clusters = 0, bytes = 0;
  Share share;
  if (!find_share<N>(a, step, reach, clusters, share)) {
    if (row == 0 && blockIdx.x < kCluster) depend();  // other blocks of this kernel wait for those in front
    return;
  }
  __syncthreads();
  if (!worker && share.first < share.last) bytes = bring_first<N>(share, values, memory, barriers);
  make_turns(a, share.context - 1, turn);
  float norm[N];
#pragma unroll
  for (int i = 0; i < N; ++i) norm[i] = a.bias + plain_at(worker ? a.q_norm : a.k_norm, lane * N + i);
  __syncthreads();
  stamps.note(kAsked);
  cluster_meet();  // its other blocks have begun, and can be pushed to
  stamps.take_place();
  depend();
  stamps.note(kWaited);

  // The row's own heads: a worker has a query head, the other warps the key and the value.
  const OwnHeads own(a);
  const bool appends = share.first < share.last && share.last == share.context;
  const bool gives = rank < own.count && threadIdx.x < F::kDim;
  float x[N], gate = 0;
  load_floats<N>(
      worker ? a.q + (own.query + warp) * F::kDim * (a.gated ? 2 : 1) : (values ? a.v : a.k) + own.kv * F::kDim,
      worker ? warp < own.count : appends, x);
  if (a.gated && gives) gate = a.q[(own.query + rank) * 2 * F::kDim + F::kDim + threadIdx.x];
  if (!values) prepare_head<N>(a, norm, turn, worker ? a.scale * 1.44269504f : 1.0f, x);
  if (!worker) {
    append_and_bring<N>(share, values, appends && blockIdx.y % a.groups == 0, x, bytes, memory, barriers);
    return;
  }
  store_packed<N>(memory + F::kQueries + warp * F::kRow + lane * 2 * N, x);
  workers_meet();
  stamps.note(kRead);
  walk_and_push<N>(share, memory, tops, barriers, rank, own.count, stats);
  stamps.note(kArrived);
  if (rank >= own.count) return;
  Known known{};
  if (threadIdx.x < F::kDim) known = await_cluster<N>(memory, stats, barriers);
  stamps.note(kMultiplied);
  if (clusters > 1 && !join_clusters(a, row * gridDim.y + blockIdx.y, blockIdx.x / kCluster, clusters, rank, known)) {
    return;
  }
  if (!gives) return;
  const float y = share.context > 0 ? known.value / known.sum : 0.0f;
  a.y[(own.query + rank) * F::kDim + threadIdx.x] = a.gated ? y * sigmoid(gate) : y;
  stamps.end();
}

// ---- recording

uint32_t reach_of(uint32_t head_dim) {
  return kCluster * (head_dim == 64    ? Form<2>::kPositions
                     : head_dim == 128 ? Form<4>::kPositions
                                       : Form<8>::kPositions);
}
// Of a row. Many rows fill the device with fewer, and blocks without work take time as well.
uint32_t most_clusters(const swy_attention_attrs& a, const swy_bucket& bucket) {
  return clusters_of(bucket.context, reach_of(a.head_dim),
                     bucket.rows <= 4    ? kMostClusters
                     : bucket.rows <= 16 ? 4
                                         : 2);
}

Attention placed(const Recording& r, uint32_t rows) {
  Attention a = attention_of(r, false);
  a.splits = most_clusters(r.attrs<swy_attention_attrs>(), r.bucket());
  a.parts = static_cast<float*>(r.operands.workspace());
  const uint32_t units = rows * a.kv_heads * a.groups;
  a.counters = take_counters(r.list, units, r.error);
  return a;
}

template <int N>
swy_status record_form(const Recording& r, const Attention& a, uint32_t rows) {
  return launch_clusters(r, decode<N>, kCluster, dim3(a.splits * kCluster, a.kv_heads * a.groups, rows), kThreads,
                         Form<N>::kBytes, a, reach_of(a.head_dim), r.list.step);
}

swy_status record(const Recording& r) {
  const auto rows = static_cast<uint32_t>(r.op.inputs[0]->dims[0]);
  const Attention a = placed(r, rows);
  if (a.counters == nullptr) return SWY_UNSUPPORTED;  // the reason is given already
  return a.head_dim == 64    ? record_form<2>(r, a, rows)
         : a.head_dim == 128 ? record_form<4>(r, a, rows)
                             : record_form<8>(r, a, rows);
}

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  const auto& a = attention_attrs(op);
  if ((bucket.flags & SWY_BUCKET_DECODE) == 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "takes decoding steps, one row per sequence");
  }
  if (!device.kv_bf16) return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "needs keys and values in bf16");
  if (!is_hopper(device) || device.block_memory < Form<4>::kBytes + 4096) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "needs the clusters of compute capability 9.0");
  }
  if (bucket.rows > 64) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "takes at most 64 rows, the bucket has %u", bucket.rows);
  }
  if ((bucket.page_size & (bucket.page_size - 1)) != 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "pages have %u tokens; it must be a power of two",
                     bucket.page_size);
  }
  if (a.head_dim != 64 && a.head_dim != 128 && a.head_dim != 256) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "head_dim is %u; it must be 64, 128 or 256", a.head_dim);
  }
  if (a.rotary_dim % (a.head_dim / 16) == 0) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "rotary_dim is %u; it must be a multiple of %u",
                   a.rotary_dim, a.head_dim / 16);
}

double cost(const swy_op& op, const swy_bucket& bucket) {
  const auto& a = attention_attrs(op);
  return 6 + 4.0 * bucket.rows * bucket.context * a.head_dim * a.kv_heads / 3.0e6;
}

uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket& bucket) {
  const auto& a = attention_attrs(op);
  const uint64_t units = uint64_t{bucket.rows} * a.kv_heads * groups_of(a);
  return units * most_clusters(a, bucket) * (kHeads * a.head_dim + 2 * kCluster) * sizeof(float);
}

constexpr Kernel kKernels[] = {
    {"attention.decode", SWY_OP_ATTENTION, kAlways, SWY_BF16, supports, cost, workspace, record}};

}  // namespace

std::span<const Kernel> attention_decode_kernels() { return kKernels; }

}  // namespace gpu
