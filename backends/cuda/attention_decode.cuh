// What the warps of attention.decode do with keys, values and heads (attention_decode.cu says how they work together).
#pragma once

#include "attention.cuh"
#include "clusters.cuh"
#include "tiles.cuh"

namespace gpu {

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

// All workers.
__device__ inline void workers_meet() { asm volatile("bar.sync 1, %0;" ::"n"(kWorkers) : "memory"); }

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

// 2^(x - less), and 0 of minus infinity less itself.
__device__ inline float power(float x, float less) { return exp2_of(x - (less == -INFINITY ? 0.0f : less)); }

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

}  // namespace gpu
