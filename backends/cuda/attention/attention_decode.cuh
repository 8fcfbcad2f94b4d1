// SPDX-License-Identifier: Apache-2.0
// Device functions of attention.decode for tiles of keys and values, and for results of other blocks
// (attention_decode.cu explains how they work together).
#pragma once

#include "attention_ring.cuh"

namespace gpu {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// ---- a tile: products m16n8k16 and m16n8k8, whose rows and columns a thread has by g = lane / 4 and t = lane % 4

// 2^(x - less); 0 if both are minus infinity.
__device__ inline float power(float x, float less) { return exp2_of(x - (less == -INFINITY ? 0.0f : less)); }

// The address that a lane passes to ldmatrix. Of a tile of 16 positions: rows 0-7 and 8-15 of a stage, both halves of
// 16 elements. Of 8 positions: 32 elements. Elements from kSpan<F> k on are at elements_at(lane_at, k).
template <class F>
constexpr uint32_t kSpan = 256 / F::kTile;
template <class F>
__device__ inline uint32_t lane_at(uint32_t stage) {
  const uint32_t lane = threadIdx.x % 32;
  return F::kTile == 16 ? unit_at<F>(stage, lane / 16 * 8 + lane % 8, lane / 8 % 2)
                        : unit_at<F>(stage, lane % 8, lane / 8);
}
template <class F>
__device__ inline uint32_t elements_at(uint32_t lane_at, uint32_t k) {
  const uint32_t element = kSpan<F> * k;
  return (lane_at ^ (element % 64 * 2)) + element / 64 * F::kColumn;
}

// d [16, 8] += a [16, 8] b [8, 8].
__device__ inline void multiply_eight(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a0), "r"(a1), "r"(b));
}

// Scores of head g with positions 8 h + 2 t and + 1 of a tile, as sums of kSums<F> parts from kSums<F> h on.
using Scores = float[4][4];
template <class F>
constexpr uint32_t kSums = 32 / F::kTile;

// Adds the contribution of a stage's keys, its columns from `column` on. The query heads are rows 0-7 of first
// operands; keeping these in registers would take too many.
template <class F>
__device__ inline void add_scores(const Memory<F>& memory, uint32_t stage, uint32_t column, Scores& part) {
  constexpr uint32_t kLoads = 32 / kSpan<F>;  // of 32 elements
  const uint32_t lane = threadIdx.x % 32, at = lane_at<F>(stage);
  const uint32_t queries = shared_at(memory.head(lane % 8)) + lane / 8 * 16 + column * 128;
#pragma unroll
  for (uint32_t k = 0; k < 2 * F::kOfStage; ++k) {
    uint32_t q[4], keys[kLoads][4];
    load_matrices(q, queries + k * 64);
#pragma unroll
    for (uint32_t i = 0; i < kLoads; ++i) load_matrices(keys[i], elements_at<F>(at, kLoads * k + i));
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t heads[4] = {q[2 * i], 0, q[2 * i + 1], 0};
      if constexpr (F::kTile == 16) {
        matrix_multiply(part[i], heads, keys[i][0], keys[i][1]);
        matrix_multiply(part[2 + i], heads, keys[i][2], keys[i][3]);
      } else {
        matrix_multiply(part[k % 2 * 2 + i], heads, keys[0][2 * i], keys[0][2 * i + 1]);
      }
    }
  }
}

// A warp's running sums. Of head g: the largest score and this lane's weights. Of heads 2 t and 2 t + 1: elements 16 m
// + g (and + 8) of the weighted values.
template <class F>
struct Sums {
  static constexpr uint32_t kHalves = F::kTile / 8;
  using Weights = uint32_t[kHalves];

  float top = -INFINITY, weight = 0;
  float value[2 * F::kLane][4] = {};

  // Turns scores into weights: w[h] is for positions 8 h + 2 t and + 1. `left`: positions from the tile's first one on.
  __device__ void weigh(const Scores& part, uint32_t left, Weights& w) {
    const uint32_t t = threadIdx.x % 4;
    float s[2 * kHalves];
#pragma unroll
    for (uint32_t j = 0; j < 2 * kHalves; ++j) {
      const uint32_t first = j / 2 * kSums<F>;
      s[j] = part[first][j % 2] + part[first + 1][j % 2];
      if constexpr (kSums<F> == 4) s[j] += part[2][j % 2] + part[3][j % 2];
      if (j / 2 * 8 + 2 * t + j % 2 >= left) s[j] = -INFINITY;
    }
    float best = fmaxf(s[0], s[1]);
    if constexpr (kHalves == 2) best = fmaxf(best, fmaxf(s[2], s[3]));
    best = fmaxf(best, __shfl_xor_sync(kAll, best, 1));
    best = fmaxf(best, __shfl_xor_sync(kAll, best, 2));
    if (__any_sync(kAll, best > top)) raise(fmaxf(best, top));
#pragma unroll
    for (uint32_t j = 0; j < 2 * kHalves; ++j) {
      s[j] = exp2_of(s[j] - top);
      weight += s[j];
    }
#pragma unroll
    for (uint32_t h = 0; h < kHalves; ++h) w[h] = pack_bf16(s[2 * h], s[2 * h + 1]);
  }

  // Adds the contribution of a stage's values, part p of them.
  __device__ void add(uint32_t stage, uint32_t p, const Weights& w) {
    constexpr uint32_t kSteps = 64 / kSpan<F> * F::kOfStage;
    const uint32_t at = lane_at<F>(stage);
#pragma unroll
    for (uint32_t k = 0; k < kSteps; ++k) {
      uint32_t values[4];
      load_transposed(values, elements_at<F>(at, k));
      if constexpr (F::kTile == 16) {
        matrix_multiply(value[p * kSteps + k], {values[0], values[1], values[2], values[3]}, w[0], w[1]);
      } else {
        multiply_eight(value[2 * k], values[0], values[1], w[0]);
        multiply_eight(value[2 * k + 1], values[2], values[3], w[0]);
      }
    }
  }

  // Writes the sums where the block reads them.
  __device__ void leave(const Memory<F>& memory) const {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float* even = memory.partial(warp) + 2 * t * F::kPartial + g;
    float* odd = even + F::kPartial;
#pragma unroll
    for (int m = 0; m < 2 * F::kLane; ++m) {
      even[16 * m] = value[m][0], odd[16 * m] = value[m][1];
      even[16 * m + 8] = value[m][2], odd[16 * m + 8] = value[m][3];
    }
    float sum = weight + __shfl_xor_sync(kAll, weight, 1);
    sum += __shfl_xor_sync(kAll, sum, 2);
    if (t == 0) memory.known(warp)[g] = make_float2(top, sum);
  }

 private:
  __device__ void raise(float to) {
    const uint32_t t = threadIdx.x % 4;
    const float shrink = power(top, to);
    const float even = __shfl_sync(kAll, shrink, 8 * t), odd = __shfl_sync(kAll, shrink, 8 * t + 4);
    top = to;
    weight *= shrink;
#pragma unroll
    for (float(&v)[4] : value) v[0] *= even, v[1] *= odd, v[2] *= even, v[3] *= odd;
  }
};

// ---- joining

// The result for one head: four elements of the weighted sum of values.
struct Known {
  float top = -INFINITY, sum = 0;
  float4 value{};

  __device__ void add(Stat stat, float best, float4 v) {
    const float share = power(stat.x, best);
    sum = fmaf(share, stat.y, sum);
    value.x = fmaf(share, v.x, value.x), value.y = fmaf(share, v.y, value.y);
    value.z = fmaf(share, v.z, value.z), value.w = fmaf(share, v.w, value.w);
  }
};

// Pushes the results of the block's warps to the blocks that join their pieces. All threads must call this. A block
// outside a cluster cannot push: its threads must meet at a barrier before they read the inbox.
template <class F>
__device__ inline void push_sums(const Memory<F>& memory, const Cut& cut, uint32_t rank) {
  Small<F>& small = memory.small();
  for (uint32_t i = threadIdx.x; i < kHeads * F::kVectors; i += kThreads) {
    const uint32_t head = i / F::kVectors, at = i % F::kVectors;
    Known k;
#pragma unroll
    for (uint32_t w = 0; w < kWorkers; ++w) k.top = fmaxf(k.top, memory.known(w)[head].x);
#pragma unroll
    for (uint32_t w = 0; w < kWorkers; ++w) {
      k.add(memory.known(w)[head], k.top,
            *reinterpret_cast<const float4*>(memory.partial(w) + head * F::kPartial + at * 4));
    }
    const uint32_t piece = i / F::kPiece, to = cut.joiner<F>(piece), place = rank * cut.own<F>() + cut.place<F>(piece);
    float4* value = memory.inbox() + place * F::kPiece + i % F::kPiece;
    Stat* stat = small.inbox + place;
    const bool first = i % F::kPiece == 0;
    if (cut.size<F>() == 1) {
      *value = k.value;
      if (first) *stat = make_float2(k.top, k.sum);
    } else {
      push(value, &small.pushed, to, k.value);
      if (first) push(stat, &small.pushed, to, make_float2(k.top, k.sum));
    }
  }
}
template <class F>
constexpr uint32_t kPushedBytes = kHeads* F::kDim * 4 + F::kPieces * sizeof(Stat);

// A vector of the block's `piece`-th piece, over the cluster's blocks.
template <class F>
__device__ inline Known join_blocks(const Memory<F>& memory, const Cut& cut, uint32_t piece, uint32_t at) {
  const Small<F>& small = memory.small();
  Stat stats[F::kPieces];
  Known k;
#pragma unroll
  for (uint32_t b = 0; b < F::kPieces; ++b) {
    stats[b] = b < cut.size<F>() ? small.inbox[b * cut.own<F>() + piece] : make_float2(-INFINITY, 0);
    k.top = fmaxf(k.top, stats[b].x);
  }
#pragma unroll
  for (uint32_t b = 0; b < F::kPieces; ++b) {
    if (b < cut.size<F>()) k.add(stats[b], k.top, memory.inbox()[(b * cut.own<F>() + piece) * F::kPiece + at]);
  }
  return k;
}

// Results that the clusters of a row write to the workspace: per cluster [kHeads][head_dim], and the heads' stats.
struct Parts {
  float* base;
  uint32_t dim;

  // unit: index of row, KV head and group.
  __device__ Parts(const Attention& a, uint32_t unit)
      : base(a.parts + uint64_t{unit} * a.splits * (kHeads * (a.head_dim + 2))), dim(a.head_dim) {}
  __device__ float4* value(uint32_t cluster, uint32_t head) const {
    return reinterpret_cast<float4*>(base + cluster * kHeads * (dim + 2) + head * dim);
  }
  __device__ Stat* stat(uint32_t cluster, uint32_t head) const {
    return reinterpret_cast<Stat*>(base + cluster * kHeads * (dim + 2) + kHeads * dim) + head;
  }
};

// Whether this is the last block of the row's clusters for these heads. If so, the results of the others can be read.
// All threads must call this.
__device__ inline bool last_cluster(uint32_t* counter, uint32_t clusters, const Cut& cut, uint32_t rank,
                                    uint32_t* last) {
  __syncthreads();
  if (threadIdx.x == 0) {
    const uint32_t bits = 32 / max(cut.blocks, 4u), shift = rank * bits;  // of each block, in one counter
    uint32_t seen;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(seen)
                 : "l"(counter), "r"(1u << shift)
                 : "memory");
    *last = ((seen >> shift) & ((1u << bits) - 1)) + 1 == clusters;
    if (*last != 0) atomicSub(counter, clusters << shift);
  }
  __syncthreads();
  return *last != 0;
}

// Over all clusters, eight at a time.
__device__ inline Known join_clusters(const Parts& parts, uint32_t clusters, uint32_t head, uint32_t at) {
  Known k;
  for (uint32_t from = 0; from < clusters; from += 8) {
    Stat stats[8];
    float4 values[8];
    float best = k.top;
#pragma unroll
    for (uint32_t c = 0; c < 8; ++c) {
      const bool in = from + c < clusters;
      stats[c] = in ? __ldcg(parts.stat(from + c, head)) : make_float2(-INFINITY, 0);
      values[c] = in ? __ldcg(parts.value(from + c, head) + at) : float4{};
    }
#pragma unroll
    for (uint32_t c = 0; c < 8; ++c) best = fmaxf(best, stats[c].x);
    Known all;
    all.top = best;
    all.add(make_float2(k.top, k.sum), best, k.value);
#pragma unroll
    for (uint32_t c = 0; c < 8; ++c) all.add(stats[c], best, values[c]);
    k = all;
  }
  return k;
}

#endif

}  // namespace gpu
