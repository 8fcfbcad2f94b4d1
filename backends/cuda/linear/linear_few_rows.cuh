// SPDX-License-Identifier: Apache-2.0
// A block of linear_few.cuh before its products: its requests before the wait, and the activations' second operand.
#pragma once

#include "common/boxes.cuh"
#include "common/clusters.cuh"
#include "linear_few.h"

namespace gpu {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

struct alignas(16) FewShared {
  float squares[kFewMostSlices][kFewMostRows];  // of this block's columns
  float of_peers[kFewMostCluster][kFewMostRows];
  uint64_t arrived[kFewMostWarps], pushed, over;
  uint64_t come[kFewChunks];  // rows that the kernel in front has made ready
};

// ---- the cluster

__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
__device__ inline void arrive_at_peer(const uint64_t* barrier, uint32_t rank) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(at_peer(barrier, rank)) : "memory");
}

// ---- products

// d = c + a * b. m16n8k16 of bf16; d may be c.
__device__ inline void multiply_onto(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                     const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, "
      "%12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// What lane 4 g + t gets of the second operand of eight rows of a group: row g, words 0 to 3 (FewRows::place) of unit
// 2 t + j.
__device__ inline uint4 load_operand(const char* eight, uint32_t j) {
  const uint32_t lane = threadIdx.x % 32, row = lane % 8;
  uint4 b;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(b.x), "=r"(b.y), "=r"(b.z), "=r"(b.w)
               : "r"(shared_at(eight + row * 128 + ((j * 4 + lane / 8) ^ row) * 16))
               : "memory");
  return b;
}

// The row of eight that a lane reads, so that a half warp has no bank conflicts.
__device__ inline uint32_t box_row() { return threadIdx.x % 16 / 4 * 2 + threadIdx.x % 32 / 16; }

// Eight 4-bit numbers: elements 0 4 and 2 6 in `even` as 2^-133 of themselves, 1 5 and 3 7 in `odd` as 2^-129. half: of
// the instruction's rows.
__device__ inline void unpack_word(uint32_t word, uint32_t half, uint32_t (&even)[4], uint32_t (&odd)[4]) {
  even[half] = word & 0x000f000f, even[2 + half] = word >> 8 & 0x000f000f;
  odd[half] = word & 0x00f000f0, odd[2 + half] = word >> 8 & 0x00f000f0;
}

// A scale and an offset of wgmma's weights, as two bf16; the offset is that of even columns (linear_few_wgmma.cuh).
__device__ inline uint32_t few_factors(float scale, float offset, bool affine) {
  const RoundedPair s(scale * (kFewWeights / kFewUnit), 0);
  const RoundedPair o(affine ? offset * kFewWeights : -8 * (s.low * kFewUnit), 0);
  return __byte_perm(s.bits, o.bits, 0x5410);
}

// One block. N: groups of 8 rows of activations. kWgmma: its products are those of linear_few_wgmma.cuh.
template <int N, bool kAffine, bool kWgmma>
struct FewBlock {
  const Few& f;
  FewShared& shared;
  char* memory;
  uint32_t warp, lane, rank, rows;
  uint32_t first, tiles;  // of this cluster, of its kind
  bool plain;

  __device__ FewBlock(const Few& few, FewShared& s, char* dynamic)
      : f(few), shared(s), memory(first_box(dynamic)), warp(threadIdx.x / 32), lane(threadIdx.x % 32) {
    const FewCut& c = f.cut;
    const uint32_t cluster = blockIdx.x >> c.shift;
    rank = blockIdx.x & (c.blocks() - 1);
    plain = cluster >= c.clusters;
    const uint32_t each = plain ? c.plain_tiles : c.tiles;
    first = (plain ? cluster - c.clusters : cluster) * each;
    tiles = min(each, f.first[plain][f.p.count] - first);
  }
  __device__ uint32_t column() const { return rank * f.cut.groups * kFewGroup; }
  __device__ uint32_t first_scale() const { return column() / kFewGroup >> f.cut.scale_shift; }
  __device__ uint32_t parts() const { return plain ? f.cut.plain_parts : f.cut.parts; }
  __device__ uint32_t weight_of_tile(uint32_t tile) const {
    uint32_t i = 0;
    while (i + 1 < f.p.count && tile >= f.first[plain][i + 1]) ++i;
    return i;
  }
  // The pieces of this cluster's results that this block writes: rank, rank + blocks, ...
  __device__ uint32_t owned() const { return (tiles * N + f.cut.blocks() - 1 - rank) >> f.cut.shift; }

  __device__ void begin_barriers() {
    const uint32_t blocks = f.cut.blocks();
    for (uint64_t& b : shared.arrived) barrier_begin(&b, 1);
    for (uint64_t& b : shared.come) barrier_begin(&b, 1);
    barrier_begin(&shared.pushed, 1);
    barrier_begin(&shared.over, blocks * f.cut.warps());
    barriers_begun();
    barrier_expect(&shared.pushed, blocks * (owned() * parts() * 512 + (f.p.normed ? N * 32 : 0)));
  }

  // ---- before the wait

  // Warps of the first team request their tiles: warp w requests tile w, and tile w + warps of a team.
  __device__ void ask(const FewMaps& maps) {
    const uint32_t slices = f.cut.slices(), team = f.cut.team;
    if (plain || warp >= team || warp >= tiles) return;
    const uint32_t boxes = (warp + team < tiles ? 2 : 1) * slices;
    if (lane == 0) barrier_expect(&shared.arrived[warp], boxes * kTileBytes);
    __syncwarp();
    for (uint32_t i = lane; i < boxes; i += 32) {
      const uint32_t mine = warp + i / slices * team, slice = i % slices, w = weight_of_tile(first + mine);
      copy_box(shared_at(memory + (mine * slices + slice) * kTileBytes), maps.of[f.map[w]],
               column() / 2 + slice * kBoxBytes, (first + mine - f.first[0][w]) * kTileRows,
               shared_at(&shared.arrived[warp]));
    }
  }
  // Scales of the block's columns, [row][scales], then offsets in the same order, or both as few_factors; in pieces of
  // T.
  template <class T>
  __device__ void bring_scales_as() {
    constexpr uint32_t kEach = sizeof(T) / 2;
    const uint32_t pieces = f.cut.scales / kEach, all = tiles * kTileRows * pieces;
    auto* to = reinterpret_cast<T*>(memory + f.cut.scales_at());
    for (uint32_t i = threadIdx.x; i < all; i += blockDim.x) {
      const uint32_t row = i / pieces, tile = first + row / kTileRows, w = weight_of_tile(tile);
      const Weight& weight = f.p.weights[w];
      const uint32_t in = min((tile - f.first[0][w]) * kTileRows + row % kTileRows, weight.rows - 1);
      const uint64_t at = (uint64_t{in} * weight.groups + first_scale()) / kEach + i % pieces;
      const T scales = __ldg(reinterpret_cast<const T*>(weight.scales) + at);
      const T offsets = kAffine ? __ldg(reinterpret_cast<const T*>(weight.offsets) + at) : scales;
      if constexpr (kWgmma) {
#pragma unroll
        for (uint32_t k = 0; k < kEach; ++k) {
          reinterpret_cast<uint32_t*>(to)[i * kEach + k] =
              few_factors(half_bits(reinterpret_cast<const uint16_t*>(&scales)[k]),
                          half_bits(reinterpret_cast<const uint16_t*>(&offsets)[k]), kAffine);
        }
      } else {
        to[i] = scales;
        if (kAffine) to[f.cut.tiles * kTileRows * pieces + i] = offsets;
      }
    }
  }
  __device__ void bring_parameters() {
    auto* factors = reinterpret_cast<float*>(memory + f.cut.factors_at());
    for (uint32_t i = threadIdx.x; f.p.normed && i < f.cut.groups * kFewGroup; i += blockDim.x) {
      factors[i] = f.p.bias + plain_at(f.p.norm, column() + i);
    }
    if (plain) return;
    if (f.cut.scales % 8 == 0 && f.like.groups % 8 == 0) {
      bring_scales_as<uint4>();
    } else {
      bring_scales_as<uint16_t>();
    }
  }

  // ---- activations

  // Eight elements of row m, those of unit u (8 columns), as the second operand; their sums and squares. `by`: the
  // elements' factors; kLow: also their low terms, instead of sums. Nothing is stored for rows that do not exist.
  template <bool kLow>
  __device__ void put_eight(uint32_t m, uint32_t slice, bool there, const float (&by)[8], float (&v)[8]) {
    const uint32_t u = slice * 32 + lane, group = u / 8, n = m / 8;
    float square = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) square = fmaf(v[j], v[j], square), v[j] *= by[j];
    const RoundedEight<kLow> eight(v);
    if (there) FewRows::put(memory + f.cut.x_at(), group * N + n, u, m, eight.words);
    if (kLow && there) FewRows::put(memory, group * N + n, u, m, eight.low);
    square = warp_sum(square);
    if (there && lane == 0) shared.squares[slice][m] = square;
    if constexpr (!kLow && !kWgmma) {
      float sum = eight.sum;
#pragma unroll
      for (int d = 1; d < 8; d *= 2) sum += __shfl_xor_sync(kAll, sum, d);
      auto* sums = reinterpret_cast<float*>(memory + f.cut.sums_at()) + FewRows::sum_place(group * N + n, m);
      if (there && u % 8 == 0) sums[0] = sums[2] = few_times(kAffine) * sum;
    }
  }
  // All live rows. Each warp has a slice of 256 columns, and some of the rows at a time.
  template <bool kLow>
  __device__ void put_rows() {
    constexpr uint32_t kAtOnce = N == 1 ? 2 : N == 2 ? 3 : 5;
    const uint32_t slices = f.cut.slices(), warps = f.cut.warps(), each = max(warps / slices, 1u);
    for (uint32_t slice = warp / each; slice < slices; slice += warps / each) {
      float by[8] = {1, 1, 1, 1, 1, 1, 1, 1};
      if (f.p.normed)
        load_eight(reinterpret_cast<const float*>(memory + f.cut.factors_at()) + slice * kSlice + lane * 8, by);
      for (uint32_t row = warp % each; row < rows; row += kAtOnce * each) {
        float v[kAtOnce][8] = {};
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; ++i) {
          const uint32_t m = row + i * each;
          if (m < rows) load_eight_fresh(f.p.x + uint64_t{m} * f.p.width + column() + slice * kSlice + lane * 8, v[i]);
        }
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; ++i) {
          const uint32_t m = row + i * each;
          put_eight<kLow>(m, slice, m < rows, by, v[i]);
        }
      }
    }
  }
  // Rows that are ready: one thread requests them, a chunk of the columns after the other. A plain tile has their low
  // terms in the place of weights.
  __device__ void ask_rows() {
    const uint32_t each = f.cut.groups / kFewChunks, first_group = column() / kFewGroup;
    for (uint32_t i = 0; threadIdx.x == 0 && i < kFewChunks; ++i) {
      const uint32_t at = i * each * N, from = (first_group + i * each) * N, come = shared_at(&shared.come[i]);
      barrier_expect(come, each * N * (kFewBytes + (plain ? kFewBytes : kWgmma ? 0 : kFewSums)));
      copy_in(shared_at(memory) + f.cut.x_at() + at * kFewBytes, f.ready.words + from * kFewBytes, each * N * kFewBytes,
              come);
      if (plain) {
        copy_in(shared_at(memory) + at * kFewBytes, f.ready.low + from * kFewBytes, each * N * kFewBytes, come);
      } else if (!kWgmma) {
        copy_in(shared_at(memory) + f.cut.sums_at() + at * kFewSums, f.ready.sums + from * (kFewSums / 4),
                each * N * kFewSums, come);
      }
    }
    __syncwarp();
  }
  // Waits for rows that are ready, a chunk of the columns after the other, from that of group `begin` on. The copy
  // engine alone writes what these barriers announce. A wait for other blocks' stores (clusters.cuh) would also empty
  // the first-level cache.
  struct RowChunks {
    FewShared& shared;
    const bool wanted;
    const uint32_t each;   // groups of a chunk
    uint32_t chunk, come;  // groups before `come` are there

    __device__ RowChunks(const FewBlock& block, uint32_t begin)
        : shared(block.shared),
          wanted(block.f.ready.words != nullptr),
          each(wanted ? block.f.cut.groups / kFewChunks : block.f.cut.groups),
          chunk(begin / each),
          come(chunk * each) {}
    // Until the next chunk is there; returns the group after it.
    __device__ uint32_t next() {
      if (wanted) barrier_wait(shared_at(&shared.come[chunk++]), 0);
      return come += each;
    }
    __device__ void wait_until(uint32_t end) {
      while (come < end) next();
    }
  };
  // Every block needs the squares of whole rows.
  __device__ void push_squares() {
    if (!f.p.normed) return;
    for (uint32_t i = threadIdx.x; i < f.cut.blocks() * N * 2; i += blockDim.x) {
      const uint32_t at = i % (N * 2) * 4;
      float4 sum = make_float4(0, 0, 0, 0);
      for (uint32_t s = 0; s < f.cut.slices(); ++s) {
        const float4 v = *reinterpret_cast<const float4*>(&shared.squares[s][at]);
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
      }
      push(reinterpret_cast<const float4*>(&shared.of_peers[rank][at]), &shared.pushed, i / (N * 2), sum);
    }
  }
};

#endif

}  // namespace gpu
