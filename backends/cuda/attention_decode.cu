// ATTENTION of decoding steps, keys and values in bf16: one kernel, which also norms, rotates and appends.
//
// Clusters of blocks share out the positions of one sequence and KV head. A block walks through its positions in
// windows, whose keys and values lie in shared memory; those of the first one are asked for before the kernel in front
// has ended. Scores are products of 16 keys (the rows of a matrix instruction) and all query heads of the KV head (its
// columns), one warp per tile; then each warp sums up 32 elements of the values of all positions. Where heads are
// narrow, several teams of warps have windows of their own. At the end every block of a cluster joins one head: the
// others push what they know of it into its shared memory. With several clusters, the last one that comes joins them.
//
// How a row is cut depends on its position alone.
#include "attention.cuh"
#include "tiles.cuh"

namespace gpu {
namespace {

constexpr uint32_t kCluster = kHeads;  // blocks, one per query head in the end
// Warps of a block: workers, one that brings keys, one that brings values.
constexpr uint32_t kWarps = 8, kWorkers = kWarps * 32, kThreads = kWorkers + 64;
constexpr uint32_t kTile = 16;         // positions
constexpr uint32_t kMostClusters = 8;  // of a row; four bits count them
constexpr uint32_t kSpan = 20;         // floats of a head's 16 weights, almost free of bank conflicts
// Clusters of a row, of which each takes `reach` positions before there is another one.
__host__ __device__ inline uint32_t clusters_of(uint32_t context, uint32_t reach, uint32_t most) {
  const uint32_t n = (context + reach - 1) / reach;
  return n == 0 ? 1 : n < most ? n : most;
}

// N: elements of a head per lane, head_dim / 32. A team has N warps, 32 elements each.
template <int N>
struct Form {
  static constexpr uint32_t kDim = 32 * N, kTeams = kWarps / N, kTiles = N == 8 ? 5 : 4;  // tiles of a team
  static constexpr uint32_t kPositions = kTeams * kTiles * kTile, kSources = kCluster * kTeams;
  // Bytes of a row of keys or values: with so much between them, neighbouring rows meet in no bank.
  static constexpr uint32_t kRow = kDim * 2 + 32;
  // Shared memory: keys, values, query heads, weights [2][tiles][kHeads][kSpan] of this window and the one
  // before, and what is pushed [sources][head_dim].
  static constexpr uint32_t kValues = kPositions * kRow, kQueries = 2 * kValues, kWeights = kQueries + kHeads * kRow;
  static constexpr uint32_t kSpans = kTeams * kTiles * kHeads * kSpan;
  static constexpr uint32_t kInbox = kWeights + 2 * kSpans * 4;
  static constexpr uint32_t kBytes = kInbox + kSources * kDim * 4;
};

// ---- within a cluster

[[maybe_unused]] __device__ inline uint32_t shared_at(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ inline uint32_t cluster_rank() {
  uint32_t r = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
#endif
  return r;
}
// All threads of the cluster. Orders no memory but barriers that were begun before.
__device__ inline void cluster_meet() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// ---- barriers that open when so many bytes have come

__device__ inline void barrier_begin(uint64_t* barrier, uint32_t arrivals) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_at(barrier)), "r"(arrivals));
#endif
}
__device__ inline void barriers_begun() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
__device__ inline void barrier_arrive(uint64_t* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_at(barrier)) : "memory");
#endif
}
// All workers.
__device__ inline void workers_meet() { asm volatile("bar.sync 1, %0;" ::"n"(kWorkers) : "memory"); }
__device__ inline void barrier_expect(uint64_t* barrier, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_at(barrier)), "r"(bytes) : "memory");
#endif
}
__device__ inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
        : "=r"(done)
        : "r"(shared_at(barrier)), "r"(parity)
        : "memory");
  }
#endif
}
// Copies to shared memory; both lie on multiples of 16 bytes.
__device__ inline void copy_row(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_at(to)),
      "l"(from), "r"(bytes), "r"(shared_at(barrier))
      : "memory");
#endif
}
// Writes to the same place of another block's shared memory.
[[maybe_unused]] __device__ inline uint32_t at_peer(const void* mine, uint32_t rank) {
  uint32_t at = 0;
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_at(mine)), "r"(rank));
#endif
  return at;
}
__device__ inline void push(const float4* mine, const uint64_t* barrier, uint32_t rank, float4 v) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                   at_peer(mine, rank)),
               "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(at_peer(barrier, rank))
               : "memory");
#endif
}
__device__ inline void push(const float2* mine, const uint64_t* barrier, uint32_t rank, float2 v) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
                   at_peer(mine, rank)),
               "f"(v.x), "f"(v.y), "r"(at_peer(barrier, rank))
               : "memory");
#endif
}

// ---- keys and values

// Where 16 bytes of a row lie.
template <int N>
__device__ inline uint32_t unit_at(uint32_t row, uint32_t unit) {
  return row * Form<N>::kRow + unit * 16;
}

// What a block works on: positions [first, last) of `context`, and where they lie.
struct Share {
  const uint32_t* table;
  uint16_t* pages;                     // keys of the KV head in page 0
  uint32_t page_elements, shift, dim;  // 2^shift positions in a page
  uint32_t context, first, last;

  __device__ uint16_t* key(uint32_t position) const {
    return pages + uint64_t{table[position >> shift]} * page_elements + (position & ((1u << shift) - 1)) * dim;
  }
  __device__ uint32_t to_values() const { return dim << shift; }
};

// Asks for the keys (or values, `offset` elements after them) of a window, all but those of the sequence's own
// position. A warp's work; returns the bytes that will come.
template <int N>
__device__ inline uint32_t bring(const Share& share, uint32_t first, uint32_t offset, char* to, uint64_t* barrier) {
  const uint32_t rows = min(min(share.last, share.context - 1) - first, Form<N>::kPositions);
  for (uint32_t row = threadIdx.x % 32; row < rows; row += 32) {
    copy_row(to + row * Form<N>::kRow, share.key(first + row) + offset, Form<N>::kDim * 2, barrier);
  }
  return rows * Form<N>::kDim * 2;
}

// Zeros from a row of the values up to the end of its tile: they weigh nothing, but must be numbers.
template <int N>
__device__ inline void clear_values(uint32_t row, char* values) {
  const uint32_t units = (kTile - row % kTile) % kTile * (Form<N>::kRow / 16);
  for (uint32_t i = threadIdx.x % 32; i < units; i += 32) {
    *reinterpret_cast<uint4*>(values + row * Form<N>::kRow + i * 16) = make_uint4(0, 0, 0, 0);
  }
}

// ---- the row's own heads

// N consecutive floats per lane.
template <int N>
__device__ inline void load_floats(const float* from, bool in, float (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = 0;
  if (in) load_kv<N>(from + threadIdx.x % 32 * N, x);
}

// N elements in bf16, which lie on a multiple of their size.
template <int N>
__device__ inline void store_packed(void* to, const float (&x)[N]) {
  uint32_t w[N / 2];
#pragma unroll
  for (int i = 0; i < N / 2; ++i) w[i] = pack_bf16(x[2 * i], x[2 * i + 1]);
  if constexpr (N == 8) {
    *static_cast<uint4*>(to) = make_uint4(w[0], w[1], w[2], w[3]);
  } else if constexpr (N == 4) {
    *static_cast<uint2*>(to) = make_uint2(w[0], w[1]);
  } else {
    *static_cast<uint32_t*>(to) = w[0];
  }
}

// Norms and rotates a head, of which a lane has N elements. turn: cosine and sine per pair of elements, shared memory.
template <int N>
__device__ inline void prepare_head(const Attention& a, const float (&norm)[N], const float2* turn, float factor,
                                    float (&x)[N]) {
  const uint32_t lane = threadIdx.x % 32, lanes = a.rotary / 2 / N;  // between the elements of a pair
  const bool lower = lane < lanes, turns = lane < 2 * lanes;
  const uint32_t other = lower ? lane + lanes : lane - lanes;
  const float2* mine = turn + (turns ? (lower ? lane : other) * N : 0);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) squares = fmaf(x[i], x[i], squares);
  const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(32 * N) + a.eps) * factor;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float y = x[i] * scale * norm[i], z = __shfl_sync(kAll, y, other);
    const float2 t = mine[i];
    x[i] = turns ? fmaf(y, t.x, z * (lower ? -t.y : t.y)) : y;
  }
}

// The cosines and sines of a position, one pair per thread.
__device__ inline void make_turns(const Attention& a, uint32_t position, float2* turn) {
  if (threadIdx.x >= a.rotary / 2) return;
  const double turns = position * a.turns[threadIdx.x];  // what is left of whole turns is exact
  float s, c;
  sincospif(static_cast<float>(2 * (turns - rint(turns))), &s, &c);
  turn[threadIdx.x] = make_float2(c, s);
}

// ---- a window

// Which 16 bytes of a row a thread of a quad takes: i is 0 .. N - 1.
__device__ inline uint32_t quad_unit(uint32_t t, uint32_t i) { return i / 2 * 8 + t % 2 + t / 2 * 4 + i % 2 * 2; }

// 2^x, and 0 of minus infinity less itself.
__device__ inline float power(float x, float less) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x - (less == -INFINITY ? 0.0f : less)));
  return y;
}

// What the 16 positions of a tile weigh beside the heaviest of them, which is `tops`: weights [kHeads][kSpan], position
// 4 j + t at 4 t + j. `first`: the tile's position.
template <int N>
__device__ inline void weigh_tile(const char* keys, const uint4 (&q)[N], uint32_t first, uint32_t last, float* weights,
                                  float* tops) {
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  float part[4][4] = {}, s[4];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const uint32_t unit = quad_unit(t, i);
    const uint4 low = *reinterpret_cast<const uint4*>(keys + unit_at<N>(g, unit));
    const uint4 high = *reinterpret_cast<const uint4*>(keys + unit_at<N>(g + 8, unit));
    const uint32_t even[4] = {low.x, high.x, low.y, high.y}, odd[4] = {low.z, high.z, low.w, high.w};
    matrix_multiply(part[i % 2 * 2], even, q[i].x, q[i].y);
    matrix_multiply(part[i % 2 * 2 + 1], odd, q[i].z, q[i].w);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j)
    s[j] = first + g + j / 2 * 8 < last ? (part[0][j] + part[1][j]) + (part[2][j] + part[3][j]) : -INFINITY;
  float top[2] = {fmaxf(s[0], s[2]), fmaxf(s[1], s[3])};  // of heads 2 t and 2 t + 1
#pragma unroll
  for (int d = 4; d < 32; d *= 2) {
    top[0] = fmaxf(top[0], __shfl_xor_sync(kAll, top[0], d));
    top[1] = fmaxf(top[1], __shfl_xor_sync(kAll, top[1], d));
  }
  float* to = weights + 2 * t * kSpan + g % 4 * 4 + g / 4;
  to[0] = power(s[0], top[0]);
  to[kSpan] = power(s[1], top[1]);
  to[2] = power(s[2], top[0]);
  to[kSpan + 2] = power(s[3], top[1]);
  if (g == 0) *reinterpret_cast<float2*>(tops + 2 * t) = make_float2(top[0], top[1]);
}

// What a warp sums up: query head g for the weights; elements 4 g and on of its 32 for the values, of heads 2 t and
// 2 t + 1.
struct Sums {
  float top, weight;  // of this lane's positions
  float value[2][4];
};

// Adds the values of a team's tiles. values: the warp's elements of the team's first position.
template <int N>
__device__ inline void add_values(const char* values, uint32_t unit, uint32_t tiles, const float* weights,
                                  const float* tops, Sums& sums) {
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  float best = sums.top;
#pragma unroll
  for (uint32_t i = 0; i < Form<N>::kTiles; ++i) best = fmaxf(best, i < tiles ? tops[i * kHeads + g] : -INFINITY);
  const float shrink = power(sums.top, best), even = __shfl_sync(kAll, shrink, 8 * t),
              odd = __shfl_sync(kAll, shrink, 8 * t + 4);
  sums.top = best;
  sums.weight *= shrink;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    sums.value[m][0] *= even, sums.value[m][1] *= odd, sums.value[m][2] *= even, sums.value[m][3] *= odd;
  }
#pragma unroll 2
  for (uint32_t i = 0; i < tiles; ++i) {
    const float share = power(tops[i * kHeads + g], best);
    const float4 w = *reinterpret_cast<const float4*>(weights + (i * kHeads + g) * kSpan + 4 * t);
    uint2 v[4];  // four elements of four positions
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      v[j] = *reinterpret_cast<const uint2*>(values + unit_at<N>(i * kTile + j * 4 + t, unit + g / 2) + g % 2 * 8);
    }
    const float x[4] = {w.x * share, w.y * share, w.z * share, w.w * share};
    sums.weight += (x[0] + x[1]) + (x[2] + x[3]);
    const uint32_t b0 = pack_bf16(x[0], x[1]), b1 = pack_bf16(x[2], x[3]);
    const uint32_t low[4] = {__byte_perm(v[0].x, v[1].x, 0x5410), __byte_perm(v[0].x, v[1].x, 0x7632),
                             __byte_perm(v[2].x, v[3].x, 0x5410), __byte_perm(v[2].x, v[3].x, 0x7632)};
    const uint32_t high[4] = {__byte_perm(v[0].y, v[1].y, 0x5410), __byte_perm(v[0].y, v[1].y, 0x7632),
                              __byte_perm(v[2].y, v[3].y, 0x5410), __byte_perm(v[2].y, v[3].y, 0x7632)};
    matrix_multiply(sums.value[0], low, b0, b1);
    matrix_multiply(sums.value[1], high, b0, b1);
  }
}

// ---- joining

// What is known of one head: the largest score, the sum of weights, and one weighted element of the values.
struct Known {
  float top, sum, value;
};

// Pushes a warp's sums to the blocks that join their heads.
template <int N>
__device__ inline void push_sums(const Sums& sums, uint32_t warp, uint32_t source, uint32_t heads, float* inbox,
                                 float2* stats, const uint64_t* barrier) {
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const auto* to = reinterpret_cast<const float4*>(inbox + source * Form<N>::kDim + warp % N * 32 + g * 4);
  const auto& y = sums.value;
  if (2 * t < heads) push(to, barrier, 2 * t, make_float4(y[0][0], y[0][2], y[1][0], y[1][2]));
  if (2 * t + 1 < heads) push(to, barrier, 2 * t + 1, make_float4(y[0][1], y[0][3], y[1][1], y[1][3]));
  float weight = sums.weight + __shfl_xor_sync(kAll, sums.weight, 1);
  weight += __shfl_xor_sync(kAll, weight, 2);
  if (warp % N == 0 && t == 0 && g < heads) push(stats + source, barrier, g, make_float2(sums.top, weight));
}

// Element `at` of the block's head, over all teams of the cluster's blocks.
template <int N>
__device__ inline Known join_cluster(const float* inbox, const float2* stats, uint32_t at) {
  constexpr uint32_t kSources = Form<N>::kSources;
  const uint32_t lane = threadIdx.x % 32;
  const float2 stat = lane < kSources ? stats[lane] : make_float2(-INFINITY, 0);
  Known k{warp_max(stat.x), 0, 0};
  const float share = power(stat.x, k.top);
  k.sum = warp_sum(share * stat.y);
#pragma unroll 8
  for (uint32_t s = 0; s < kSources; ++s) {
    k.value = fmaf(__shfl_sync(kAll, share, s), inbox[s * Form<N>::kDim + at], k.value);
  }
  return k;
}

// Of the blocks of a row's clusters that have one head: what all know; false: another block has it. All workers come.
// unit: of the row, the KV head and the group.
__device__ inline bool join_clusters(const Attention& a, uint32_t unit, uint32_t cluster, uint32_t clusters,
                                     uint32_t rank, Known& k) {
  __shared__ bool last;
  const uint64_t stride = kCluster * (a.head_dim + 2);  // floats of a cluster: per head its top, its sum and the values
  float* parts = a.parts + uint64_t{unit} * a.splits * stride + rank * (a.head_dim + 2);
  const uint32_t i = threadIdx.x;
  if (i < a.head_dim) parts[cluster * stride + 2 + i] = k.value;
  if (i == 0) *reinterpret_cast<float2*>(parts + cluster * stride) = make_float2(k.top, k.sum);
  workers_meet();
  if (i == 0) {
    uint32_t seen, *counter = a.counters + unit, shift = rank * 4;  // four bits per block
#if __CUDA_ARCH__ >= 900
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(seen)
                 : "l"(counter), "r"(1u << shift)
                 : "memory");
#else
    seen = atomicAdd(counter, 1u << shift);
#endif
    last = ((seen >> shift) & 15) + 1 == clusters;
    if (last) atomicSub(counter, clusters << shift);
  }
  workers_meet();
  if (!last || i >= a.head_dim) return false;
  float2 stats[kMostClusters];
  float value[kMostClusters], best = -INFINITY;
#pragma unroll
  for (uint32_t c = 0; c < kMostClusters; ++c) {
    const bool in = c < clusters;
    stats[c] = in ? __ldcg(reinterpret_cast<const float2*>(parts + c * stride)) : make_float2(-INFINITY, 0);
    value[c] = in ? __ldcg(parts + c * stride + 2 + i) : 0.0f;
  }
#pragma unroll
  for (uint32_t c = 0; c < kMostClusters; ++c) best = fmaxf(best, stats[c].x);
  k = {best, 0, 0};
#pragma unroll
  for (uint32_t c = 0; c < kMostClusters; ++c) {
    const float share = power(stats[c].x, best);
    k.sum = fmaf(share, stats[c].y, k.sum);
    k.value = fmaf(share, value[c], k.value);
  }
  return true;
}

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
  const bool worker = warp<kWarps, values = warp> kWarps;
  release_next();
  if (threadIdx.x == 0) {
    barrier_begin(&barriers.keys, 1);
    barrier_begin(&barriers.values, 1);
    barrier_begin(&barriers.keys_read, kWarps);
    barrier_begin(&barriers.values_read, kWarps);
    barrier_begin(&barriers.pushed, 1);
    barriers_begun();
    barrier_expect(&barriers.pushed, F::kSources * (F::kDim + 2) * 4);
  }
  uint32_t clusters = 0, bytes = 0;
  Share share;
  if (!find_share<N>(a, step, reach, clusters, share)) {
    if (row == 0 && blockIdx.x < kCluster) depend();  // other blocks of this kernel wait for those in front
    return;
  }
  __syncthreads();
  if (!worker && share.first < share.last) {
    bytes = bring<N>(share, share.first, values ? share.to_values() : 0, memory + (values ? F::kValues : 0),
                     values ? &barriers.values : &barriers.keys);
    if (values && share.last - share.first < F::kPositions) {
      clear_values<N>(share.last - share.first, memory + F::kValues);
    }
  }
  make_turns(a, share.context - 1, turn);
  float norm[N];
#pragma unroll
  for (int i = 0; i < N; ++i) norm[i] = a.bias + plain_at(worker ? a.q_norm : a.k_norm, lane * N + i);
  __syncthreads();
  cluster_meet();  // its other blocks have begun, and can be pushed to
  depend();

  // The row's own heads: a worker has a query head, the other warps the key and the value.
  const uint32_t kv = blockIdx.y / a.groups, first_head = kv * a.per_kv() + blockIdx.y % a.groups * kHeads;
  const uint32_t heads = min(kHeads, (kv + 1) * a.per_kv() - first_head);
  const uint64_t query = uint64_t{row} * a.heads + first_head, key = (uint64_t{row} * a.kv_heads + kv) * F::kDim;
  const bool appends = share.first < share.last && share.last == share.context;
  const bool gives = rank < heads && threadIdx.x < F::kDim;
  float x[N], gate = 0;
  load_floats<N>(worker ? a.q + (query + warp) * F::kDim * (a.gated ? 2 : 1) : (values ? a.v : a.k) + key,
                 worker ? warp < heads : appends, x);
  if (a.gated && gives) gate = a.q[(query + rank) * 2 * F::kDim + F::kDim + threadIdx.x];
  if (!values) prepare_head<N>(a, norm, turn, worker ? a.scale * 1.44269504f : 1.0f, x);
  if (!worker) {
    if (appends && blockIdx.y % a.groups == 0) {
      store_packed<N>(share.key(share.context - 1) + (values ? share.to_values() : 0) + lane * N, x);
    }
    bring_windows<N>(share, values, x, bytes, memory, barriers);
    return;
  }
  store_packed<N>(memory + F::kQueries + warp * F::kRow + lane * 2 * N, x);
  workers_meet();
  Sums sums{};
  sums.top = -INFINITY;
  walk<N>(share, memory, tops, barriers, sums);
  auto* inbox = reinterpret_cast<float*>(memory + F::kInbox);
  push_sums<N>(sums, warp, rank * F::kTeams + warp / N, heads, inbox, stats, &barriers.pushed);
  if (rank >= heads) return;
  Known known{};
  if (threadIdx.x < F::kDim) {
    barrier_wait(&barriers.pushed, 0);
    known = join_cluster<N>(inbox, stats, threadIdx.x);
  }
  if (clusters > 1 && !join_clusters(a, row * gridDim.y + blockIdx.y, blockIdx.x / kCluster, clusters, rank, known)) {
    return;
  }
  if (!gives) return;
  const float y = share.context > 0 ? known.value / known.sum : 0.0f;
  a.y[(query + rank) * F::kDim + threadIdx.x] = a.gated ? y * sigmoid(gate) : y;
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
  if (device.capability != 90 || device.block_memory < Form<4>::kBytes + 4096) {
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
