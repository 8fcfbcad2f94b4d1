// ATTENTION of decoding steps, keys and values in bf16: one kernel, which also norms, rotates and appends.
//
// Clusters of blocks share out the positions of one sequence and KV head. Keys and values of earlier positions are
// asked for before the kernel in front has ended. A stage of a block is a tile of positions in shared memory: scores
// are products of keys (16 rows of a matrix instruction) and all query heads of the KV head (8 columns), and values
// are summed up likewise, their elements being the rows. Stages of narrow heads have several teams of warps, each with
// 32 positions of its own. At the end every block of a cluster joins one share of the outputs, which it reads from the
// shared memory of the others; with several clusters, the last one that comes.
//
// How a row is cut depends on its position alone.
#include "attention.cuh"
#include "tiles.cuh"

namespace gpu {
namespace {

#ifndef SWY_ATTENTION_CLUSTER
#define SWY_ATTENTION_CLUSTER 8
#endif
constexpr uint32_t kCluster = SWY_ATTENTION_CLUSTER;  // blocks
constexpr uint32_t kWarps = 8, kWorkers = kWarps * 32, kThreads = kWorkers + 32;  // one more warp appends
constexpr uint32_t kTile = 32;         // positions of a team
constexpr uint32_t kStages = 3;        // in shared memory
constexpr uint32_t kStage = 32768;     // bytes: keys, then values
constexpr uint32_t kMostClusters = 8;  // of a row: four bits count them
constexpr uint32_t kScores = 36;       // floats per head, free of bank conflicts
constexpr uint32_t kScoreBytes = 4 * kHeads * kScores * 4, kPartBytes = kWorkers * kHeads * 4;
constexpr uint32_t kShared = kStages * kStage + kScoreBytes + kHeads * 512;
static_assert(kScoreBytes + kHeads * 512 >= kPartBytes);

// Positions that a cluster takes before there is another one.
constexpr uint32_t kReach = kCluster * 128;

__host__ __device__ inline uint32_t clusters_of(uint32_t context, uint32_t reach) {
  const uint32_t n = (context + reach - 1) / reach;
  return n == 0 ? 1 : n < kMostClusters ? n : kMostClusters;
}

// ---- within a cluster

__device__ inline uint32_t cluster_rank() {
  uint32_t r = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
#endif
  return r;
}
__device__ inline void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ inline void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
// What lies at the same place of another block's shared memory.
__device__ inline float peer_float(const float* mine, uint32_t rank) {
  float v = 0;
#if __CUDA_ARCH__ >= 900
  uint32_t at;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(at)
      : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(mine))), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(at));
#endif
  return v;
}

// ---- shared memory

// Where 16 bytes of a row lie: units change places, so that neighbouring rows meet in no bank.
template <int N>
__device__ inline uint32_t unit_at(uint32_t row, uint32_t unit) {
  return row * (64 * N) + ((unit ^ (2 * (row % 4))) * 16);
}

// What a block works on: positions [first, last) of `context`.
struct Share {
  const uint32_t* table;
  uint32_t kv, context, first, last;
};

// Asks for the keys and values of a stage, all but those of the sequence's own position; those beyond the share are
// zeros.
template <int N>
__device__ inline void bring(const Attention& a, const swy_step* step, const Share& share, uint32_t first, char* to) {
  const uint32_t unit = threadIdx.x % (4 * N), values = step->page_size * a.head_dim;
#pragma unroll
  for (uint32_t pass = 0; pass < 4; ++pass) {
    const uint32_t row = threadIdx.x / (4 * N) + pass * (64 / N), position = first + row;
    const bool in = position < share.last;
    if (in && position + 1 == share.context) continue;
    const uint16_t* key =
        keys_at<uint16_t>(a, step, share.table, share.kv, in ? position : share.first) + unit * 8;
    copy_later(to + unit_at<N>(row, unit), key, in);
    copy_later(to + kStage / 2 + unit_at<N>(row, unit), key + values, in);
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
  const uint32_t lane = threadIdx.x % 32, half = a.rotary / 2;
  float squares = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) squares = fmaf(x[i], x[i], squares);
  const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(32 * N) + a.eps) * factor;
  const uint32_t lanes = half / N;  // between the elements of a pair
  const bool lower = lane < lanes, turns = lane < 2 * lanes;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    x[i] *= scale * norm[i];
    const float other = __shfl_sync(kAll, x[i], lower ? lane + lanes : lane - lanes);
    if (!turns) continue;
    const float2 t = turn[(lower ? lane : lane - lanes) * N + i];
    x[i] = fmaf(x[i], t.x, other * (lower ? -t.y : t.y));
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

// ---- a stage

// What a warp keeps: its share of the query heads for the scores, and of the output.
struct Work {
  uint4 q[2];           // query head g, elements of two units
  float top, sum;       // query head g; the sum of this lane's positions
  float value[2][4];    // elements 4 g and on of the warp's 32, heads 2 t and 2 t + 1
};

// Which of a quarter's eight units a thread of a quad takes, i being 0 or 1.
__device__ inline uint32_t quarter_unit(uint32_t t, uint32_t i) { return t % 2 + t / 2 * 4 + 2 * i; }

// The part of the scores that a warp sums up: 16 positions of its team, 64 elements.
template <int N>
__device__ inline void score(const char* keys, uint32_t warp, const Work& work, float* scores) {
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, w = warp % N, row = warp / N * kTile + w % 2 * 16;
  float s[2][4] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t unit = w / 2 * 8 + quarter_unit(t, i);
    const uint4 low = *reinterpret_cast<const uint4*>(keys + unit_at<N>(row + g, unit));
    const uint4 high = *reinterpret_cast<const uint4*>(keys + unit_at<N>(row + g + 8, unit));
    const uint32_t first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
    matrix_multiply(s[i], first, work.q[i].x, work.q[i].y);
    matrix_multiply(s[i], second, work.q[i].z, work.q[i].w);
  }
  // In the order in which `weigh` reads: position 16 k + 4 j + t at 8 t + 4 k + j.
  float* to = scores + ((warp / N * (N / 2) + w / 2) * kHeads + 2 * t) * kScores + g % 4 * 8 + w % 2 * 4 + g / 4;
  to[0] = s[0][0] + s[1][0];
  to[kScores] = s[0][1] + s[1][1];
  to[2] = s[0][2] + s[1][2];
  to[kScores + 2] = s[0][3] + s[1][3];
}

// Adds the values of the team's 32 positions, the first being `first`, to the warp's 32 elements of all heads.
template <int N>
__device__ inline void weigh(const char* values, uint32_t warp, const float* scores, uint32_t first, uint32_t last,
                             Work& work) {
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, w = warp % N, team = warp / N;
  float x[8] = {};
#pragma unroll
  for (int part = 0; part < N / 2; ++part) {
    const auto* from =
        reinterpret_cast<const float4*>(scores + ((team * (N / 2) + part) * kHeads + g) * kScores + t * 8);
    const float4 u = from[0], v = from[1];
    x[0] += u.x, x[1] += u.y, x[2] += u.z, x[3] += u.w, x[4] += v.x, x[5] += v.y, x[6] += v.z, x[7] += v.w;
  }
  float best = work.top;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    if (first + j / 4 * 16 + j % 4 * 4 + t >= last) x[j] = -INFINITY;
    best = fmaxf(best, x[j]);
  }
  best = fmaxf(best, __shfl_xor_sync(kAll, best, 1));
  best = fmaxf(best, __shfl_xor_sync(kAll, best, 2));
  const float from = best == -INFINITY ? 0.0f : best, shrink = exp2f(work.top - from);
  work.top = best;
  work.sum *= shrink;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    x[j] = exp2f(x[j] - from);
    work.sum += x[j];
  }
  const float even = __shfl_sync(kAll, shrink, 8 * t), odd = __shfl_sync(kAll, shrink, 8 * t + 4);
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    work.value[m][0] *= even, work.value[m][1] *= odd, work.value[m][2] *= even, work.value[m][3] *= odd;
  }
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    uint2 v[4];  // four elements of four positions
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t row = team * kTile + k * 16 + j * 4 + t;
      v[j] = *reinterpret_cast<const uint2*>(values + unit_at<N>(row, w * 4 + g / 2) + g % 2 * 8);
    }
    const uint32_t b0 = pack_bf16(x[4 * k], x[4 * k + 1]), b1 = pack_bf16(x[4 * k + 2], x[4 * k + 3]);
    const uint32_t low[4] = {__byte_perm(v[0].x, v[1].x, 0x5410), __byte_perm(v[0].x, v[1].x, 0x7632),
                             __byte_perm(v[2].x, v[3].x, 0x5410), __byte_perm(v[2].x, v[3].x, 0x7632)};
    const uint32_t high[4] = {__byte_perm(v[0].y, v[1].y, 0x5410), __byte_perm(v[0].y, v[1].y, 0x7632),
                              __byte_perm(v[2].y, v[3].y, 0x5410), __byte_perm(v[2].y, v[3].y, 0x7632)};
    matrix_multiply(work.value[0], low, b0, b1);
    matrix_multiply(work.value[1], high, b0, b1);
  }
}

// ---- joining

// What is known of one head: the largest score, the sum of weights, and one weighted element of the values.
struct Known {
  float top, sum, value;
};

// Element `at` of a team's parts [kHeads, head_dim], over all teams of the cluster's blocks.
template <int N>
__device__ inline Known join_cluster(const float* parts, const float2* stats, uint32_t head, uint32_t at) {
  constexpr uint32_t kTeams = kWarps / N, kSources = kCluster * kTeams, kRounds = (kSources + 31) / 32;
  const uint32_t lane = threadIdx.x % 32;
  float top[kRounds], sum[kRounds], best = -INFINITY;
#pragma unroll
  for (uint32_t i = 0; i < kRounds; ++i) {
    const uint32_t s = i * 32 + lane;
    top[i] = -INFINITY, sum[i] = 0;
    if (s >= kSources) continue;
    const auto* from = reinterpret_cast<const float*>(stats + s % kTeams * kHeads + head);
    top[i] = peer_float(from, s / kTeams);
    sum[i] = peer_float(from + 1, s / kTeams);
  }
  float v[8];
#pragma unroll
  for (uint32_t s = 0; s < 8; ++s) v[s] = peer_float(parts + s % kTeams * (kHeads * 32 * N) + at, s / kTeams);
#pragma unroll
  for (uint32_t i = 0; i < kRounds; ++i) best = fmaxf(best, top[i]);
  best = warp_max(best);
  Known k{best, 0, 0};
#pragma unroll
  for (uint32_t i = 0; i < kRounds; ++i) {
    top[i] = top[i] == -INFINITY ? 0.0f : exp2f(top[i] - best);
    k.sum = fmaf(top[i], sum[i], k.sum);
  }
  k.sum = warp_sum(k.sum);
#pragma unroll
  for (uint32_t i = 0; i < kRounds; ++i) {
#pragma unroll 1
    for (uint32_t s = i * 32; s < min(i * 32 + 32, kSources); s += 8) {
      if (s > 0) {
#pragma unroll
        for (uint32_t j = 0; j < 8; ++j) {
          v[j] = peer_float(parts + (s + j) % kTeams * (kHeads * 32 * N) + at, (s + j) / kTeams);
        }
      }
#pragma unroll
      for (uint32_t j = 0; j < 8; ++j) k.value = fmaf(__shfl_sync(kAll, top[i], (s + j) % 32), v[j], k.value);
    }
  }
  return k;
}

// What the clusters of a row know of one share of the outputs; false: another block has the rest. All threads come.
__device__ inline bool join_clusters(const Attention& a, uint32_t unit, uint32_t cluster, uint32_t clusters,
                                     uint32_t rank, uint32_t width, Known& k) {
  __shared__ bool last;
  const uint64_t stride = kCluster * (width + 2);  // floats of a cluster: per block the elements, the top and the sum
  float* parts = a.parts + uint64_t{unit} * a.splits * stride + rank * (width + 2);
  const uint32_t i = threadIdx.x;
  if (i < width) parts[cluster * stride + 2 + i] = k.value;
  if (i == 0) *reinterpret_cast<float2*>(parts + cluster * stride) = make_float2(k.top, k.sum);
  __syncthreads();
  if (i == 0) {
    __threadfence();
    uint32_t* counter = a.counters + unit * (kCluster / 8) + rank / 8;  // four bits per block
    const uint32_t shift = rank % 8 * 4;
    last = ((atomicAdd(counter, 1u << shift) >> shift) & 15) + 1 == clusters;
    if (last) {
      atomicSub(counter, clusters << shift);
      __threadfence();
    }
  }
  __syncthreads();
  if (!last || i >= width) return false;
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
    const float share = stats[c].x == -INFINITY ? 0.0f : exp2f(stats[c].x - best);
    k.sum = fmaf(share, stats[c].y, k.sum);
    k.value = fmaf(share, value[c], k.value);
  }
  return true;
}

// ---- the kernel

// N: elements of a head per lane, head_dim / 32. blockIdx.x: cluster of the row, and block of it; blockIdx.y: KV head
// and group of query heads; blockIdx.z: row.
template <int N>
__global__ void __launch_bounds__(kThreads) decode(const __grid_constant__ Attention a, uint32_t reach,
                                                   const swy_step* step) {
  extern __shared__ __align__(128) char memory[];
  __shared__ float2 turn[kMostRotary / 2], stats[kWarps / N][kHeads];
  constexpr uint32_t kDim = N * 32, kTeams = kWarps / N, kPositions = kTeams * kTile, kWidth = kHeads * kDim / kCluster;
  auto* scores = reinterpret_cast<float*>(memory + kStages * kStage);
  auto* parts = scores;  // later: [teams][kHeads][head_dim]
  char* heads_at = memory + kStages * kStage + kScoreBytes;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, row = blockIdx.z;
  const uint32_t kv = blockIdx.y / a.groups, first_head = kv * a.per_kv() + blockIdx.y % a.groups * kHeads;
  const uint32_t heads = min(kHeads, (kv + 1) * a.per_kv() - first_head);
  const bool worker = warp < kWarps;
  release_next();
  uint32_t seq = 0, context = 0;
  if (row < step->rows) {
    seq = step_array<uint32_t>(step, step->row_seq_at)[row];
    const bool active = step_array<uint32_t>(step, step->seq_active_at)[seq] != 0;
    context = active ? step_array<uint32_t>(step, step->row_position_at)[row] + 1 : 0;
  }
  const uint32_t clusters = clusters_of(context, reach), cluster = blockIdx.x / kCluster, rank = cluster_rank();
  if (row >= step->rows || cluster >= clusters) {
    depend();
    return;
  }
  const uint32_t blocks = clusters * kCluster, each = (context + blocks * 16 - 1) / (blocks * 16) * 16;
  const uint32_t first = min((cluster * kCluster + rank) * each, context), last = min(first + each, context);
  const Share share{table_of(step, seq), kv, context, first, last};
  const uint32_t stages = (last - first + kPositions - 1) / kPositions;
  const bool appends = !worker && first < last && last == context;
  if (worker) {
#pragma unroll 1
    for (uint32_t s = 0; s < kStages; ++s) {
      if (s < stages) bring<N>(a, step, share, first + s * kPositions, memory + s * kStage);
      copies_end();
    }
  }
  make_turns(a, context - 1, turn);
  float norm[N];
#pragma unroll
  for (int i = 0; i < N; ++i) norm[i] = a.bias + plain_at(worker ? a.q_norm : a.k_norm, lane * N + i);
  __syncthreads();
  depend();

  // The row's own heads, one per warp; the last warp has the key and the value.
  const uint32_t head = rank * kHeads / kCluster, element = rank * kWidth % kDim + threadIdx.x;  // given out at the end
  const bool gives = threadIdx.x < kWidth && head < heads;
  float x[N], v[N], gate = 0;
  const uint64_t query = uint64_t{row} * a.heads + first_head, key = (uint64_t{row} * a.kv_heads + kv) * kDim;
  load_floats<N>(worker ? a.q + (query + warp) * kDim * (a.gated ? 2 : 1) : a.k + key, worker ? warp < heads : appends,
                 x);
  load_floats<N>(a.v + key, appends, v);
  if (a.gated && gives) gate = a.q[(query + head) * 2 * kDim + kDim + element];
  prepare_head<N>(a, norm, turn, worker ? a.scale * 1.44269504f : 1.0f, x);
  const uint32_t unit = lane * N / 8, in_unit = lane * N % 8 * 2;
  if (worker) store_packed<N>(heads_at + unit_at<N>(warp, unit) + in_unit, x);
  if (appends && blockIdx.y % a.groups == 0) {
    uint16_t* to = keys_at<uint16_t>(a, step, share.table, kv, context - 1) + lane * N;
    store_packed<N>(to, x);
    store_packed<N>(to + step->page_size * kDim, v);
  }

  Work work{};
  work.top = -INFINITY;
#pragma unroll 1
  for (uint32_t s = 0, buffer = 0, back = kStages - 1; s < stages; ++s) {
    char* stage = memory + buffer * kStage;
    if (appends && s + 1 == stages) {
      char* to = stage + unit_at<N>(context - 1 - (first + s * kPositions), unit) + in_unit;
      store_packed<N>(to, x);
      store_packed<N>(to + kStage / 2, v);
    }
    if (s == 0) {
      copies_wait<kStages - 1>();
    } else {
      copies_wait<kStages - 2>();
    }
    __syncthreads();
    if (worker) {
      if (s == 0) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint32_t from = warp % N / 2 * 8 + quarter_unit(t, i);
          work.q[i] = *reinterpret_cast<const uint4*>(heads_at + unit_at<N>(g, from));
        }
      } else {
        const uint32_t next = s + kStages - 1;
        if (next < stages) bring<N>(a, step, share, first + next * kPositions, memory + back * kStage);
        copies_end();
      }
      score<N>(stage, warp, work, scores);
    }
    __syncthreads();
    if (worker) {
      weigh<N>(stage + kStage / 2, warp, scores, first + s * kPositions + warp / N * kTile, last, work);
    }
    back = buffer;
    buffer = buffer + 1 == kStages ? 0 : buffer + 1;
  }

  work.sum += __shfl_xor_sync(kAll, work.sum, 1);
  work.sum += __shfl_xor_sync(kAll, work.sum, 2);
  __syncthreads();
  if (worker) {
    float* to = parts + warp / N * (kHeads * kDim) + 2 * t * kDim + warp % N * 32 + g * 4;
    const auto& y = work.value;
    *reinterpret_cast<float4*>(to) = make_float4(y[0][0], y[0][2], y[1][0], y[1][2]);
    *reinterpret_cast<float4*>(to + kDim) = make_float4(y[0][1], y[0][3], y[1][1], y[1][3]);
    if (warp % N == 0 && t == 0) stats[warp / N][g] = make_float2(work.top, work.sum);
  }
  cluster_arrive();
  cluster_wait();
  Known known{};
  if (threadIdx.x < kWidth) known = join_cluster<N>(parts, &stats[0][0], head, head * kDim + element);
  cluster_arrive();  // its peers may leave when all have read
  bool whole = gives;
  if (clusters > 1) {
    const uint32_t unit_of_row = row * gridDim.y + blockIdx.y;
    whole = join_clusters(a, unit_of_row, cluster, clusters, rank, kWidth, known) && gives;
  }
  if (whole) {
    const float y = known.sum > 0 || known.sum != known.sum ? known.value / known.sum : 0.0f;
    a.y[(query + head) * kDim + element] = a.gated ? y * sigmoid(gate) : y;
  }
  cluster_wait();
}

// ---- recording

uint32_t most_clusters(uint32_t context) { return clusters_of(context, kReach); }

Attention placed(const Recording& r, uint32_t rows) {
  Attention a = attention_of(r, false);
  a.splits = most_clusters(r.bucket().context);
  a.parts = static_cast<float*>(r.operands.workspace());
  const uint32_t units = rows * a.kv_heads * a.groups;
  a.counters = take_counters(r.list, units * (kCluster / 8), r.error);
  return a;
}

swy_status record(const Recording& r) {
  const auto rows = static_cast<uint32_t>(r.op.inputs[0]->dims[0]);
  const Attention a = placed(r, rows);
  if (a.counters == nullptr) return SWY_UNSUPPORTED;  // the reason is given already
  const auto kernel = a.head_dim == 64 ? decode<2> : a.head_dim == 128 ? decode<4> : decode<8>;
  return launch_clusters(r, kernel, kCluster, dim3(a.splits * kCluster, a.kv_heads * a.groups, rows), kThreads, kShared,
                         a, kReach, r.list.step);
}

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  const auto& a = attention_attrs(op);
  if ((bucket.flags & SWY_BUCKET_DECODE) == 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "takes decoding steps, one row per sequence");
  }
  if (!device.kv_bf16) return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "needs keys and values in bf16");
  if (device.capability != 90 || device.block_memory < kShared + 4096) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "needs the clusters of compute capability 9.0");
  }
  if (bucket.rows > 64) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "takes at most 64 rows, the bucket has %u", bucket.rows);
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
  return units * most_clusters(bucket.context) * (kHeads * a.head_dim + 2 * kCluster) * sizeof(float);
}

constexpr Kernel kKernels[] = {
    {"attention.decode", SWY_OP_ATTENTION, kAlways, SWY_BF16, supports, cost, workspace, record}};

}  // namespace

std::span<const Kernel> attention_decode_kernels() { return kKernels; }

}  // namespace gpu
