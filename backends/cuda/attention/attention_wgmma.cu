// SPDX-License-Identifier: Apache-2.0
// ATTENTION of prompts, keys and values in bf16, by Hopper's wgmma: a warpgroup has 64 queries.
//
// With kSplit 1 two warpgroups share a block's keys and values, each with its own queries. With kSplit 2 they have the
// same queries, take turns with the blocks of positions, and join at the end: more and shorter tiles. PTX ISA, section
// on wgmma: keys are its second operand as they lie in memory, values are transposed, weights come from registers.
#include "attention_prompt.cuh"

namespace gpu {
namespace {

// kSplit 1: queries of both, two buffers of keys and values. kSplit 2: queries, keys and values of each.
constexpr uint32_t shared_bytes(uint32_t dim, uint32_t split) {
  return panels_bytes(dim, kTileQueries / split + 4 * kPositions);
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr uint32_t kGroup = 128;  // threads of a warpgroup

// 16 columns of a panel as an operand [64, 16], or 16 rows of it as the transposed one.
__device__ inline uint64_t panel_descriptor(uint32_t at) {
  return uint64_t{1} << 62 | uint64_t{1024 >> 4} << 32 | uint64_t{kPanel >> 4} << 16 | (at & 0x3ffff) >> 4;
}

__device__ inline void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for all products.
template <int kTiles>
__device__ inline void products_end(float (&sums)[kTiles][4]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(sums[i][e])::"memory");
  }
}

#define SWY_SUMS(d)                                                                                         \
  "+f"((d)[0][0]), "+f"((d)[0][1]), "+f"((d)[0][2]), "+f"((d)[0][3]), "+f"((d)[1][0]), "+f"((d)[1][1]),     \
      "+f"((d)[1][2]), "+f"((d)[1][3]), "+f"((d)[2][0]), "+f"((d)[2][1]), "+f"((d)[2][2]), "+f"((d)[2][3]), \
      "+f"((d)[3][0]), "+f"((d)[3][1]), "+f"((d)[3][2]), "+f"((d)[3][3]), "+f"((d)[4][0]), "+f"((d)[4][1]), \
      "+f"((d)[4][2]), "+f"((d)[4][3]), "+f"((d)[5][0]), "+f"((d)[5][1]), "+f"((d)[5][2]), "+f"((d)[5][3]), \
      "+f"((d)[6][0]), "+f"((d)[6][1]), "+f"((d)[6][2]), "+f"((d)[6][3]), "+f"((d)[7][0]), "+f"((d)[7][1]), \
      "+f"((d)[7][2]), "+f"((d)[7][3])
#define SWY_NAMES                                                                                                   \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31}"

// Sums [64, 64] (of the whole warpgroup) over 16 columns of the panels; `more`: added to the current sums.
__device__ inline void score(float (*d)[4], uint64_t queries, uint64_t keys, bool more) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " SWY_NAMES
               ", %32, %33, p, 1, 1, 0, 0;}"
               : SWY_SUMS(d)
               : "l"(queries), "l"(keys), "r"(more ? 1 : 0));
}
// Adds weights [64, 16] * values [16, 64], these transposed.
__device__ inline void weigh(float (*d)[4], const uint32_t (&weights)[4], uint64_t values) {
  asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " SWY_NAMES
               ", {%32, %33, %34, %35}, %36, p, 1, 1, 1;}"
               : SWY_SUMS(d)
               : "r"(weights[0]), "r"(weights[1]), "r"(weights[2]), "r"(weights[3]), "l"(values));
}

// Begins the products of scores; their results must not be touched before products_end().
template <int kDim>
__device__ inline void score_block(float (&s)[8][4], uint32_t queries, uint32_t keys) {
  products_begin();
#pragma unroll
  for (uint32_t k = 0; k < kDim / 16; ++k) {
    const uint32_t at = k / 4 * kPanel + k % 4 * 32;
    score(s, panel_descriptor(queries + at), panel_descriptor(keys + at), k > 0);
  }
  products_commit();
}
template <int kDim>
__device__ inline void weigh_block(const uint32_t (&weights)[4][4], uint32_t values, Running<kDim>& r) {
  products_begin();
#pragma unroll
  for (uint32_t k = 0; k < 4; ++k) {
#pragma unroll
    for (uint32_t p = 0; p < kDim / 64; ++p) {
      weigh(r.out + 8 * p, weights[k], panel_descriptor(values + p * kPanel + k * 2048));
    }
  }
  products_commit();
  products_end(r.out);
}

// Turns the scores of a block into weights, in the layout of the next product's first operand.
template <int kDim>
__device__ inline void soften_block(float (&s)[8][4], uint32_t first, const uint32_t (&limit)[2], uint32_t window,
                                    Running<kDim>& r, uint32_t (&weights)[4][4]) {
  mask(s, first, limit, window);
  soften<kDim>(s, r);
#pragma unroll
  for (uint32_t k = 0; k < 4; ++k) as_operand(weights[k], s[2 * k], s[2 * k + 1]);
}

// Makes copied data visible to the products of `threads` threads (id 0: of the block).
template <int kLeft>
__device__ inline void arrived(uint32_t id, uint32_t threads) {
  copies_wait<kLeft>();
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Both warpgroups walk through all blocks. While a block's scores become weights, the products of the next one run.
template <int kDim>
__device__ inline void walk_together(const Attention& a, const swy_step* step, const Tile& tile, char* memory,
                                     Running<kDim>& r) {
  constexpr uint32_t kHalf = panels_bytes(kDim, kPositions), kWarps = kPromptThreads / 32;
  const uint32_t group = threadIdx.x / kGroup, m = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  const uint32_t begin = tile.first_block(a), blocks = tile.blocks();
  const uint32_t queries = shared_at(memory) + group * panels_bytes(kDim, 64);
  char* keys = memory + panels_bytes(kDim, kTileQueries);  // two buffers of keys, then two of values
  char* values = keys + 2 * kHalf;
  Pages<kDim, kWarps> pages(a, step, tile, threadIdx.x / 32, begin);
  const auto bring_keys = [&](uint32_t block) {  // after the previous block's values, which it overwrites
    if (block >= blocks) return;
    pages.find(a, step, tile.kv, block, 1);
    pages.bring(a, step, block, false, keys + block % 2 * kHalf);
  };
  const auto bring_values = [&](uint32_t block) {
    if (block < blocks) pages.bring(a, step, block, true, values + block % 2 * kHalf);
  };
  bring_queries<kDim>(a, tile, kTileQueries, memory);
  bring_keys(begin);
  copies_end();
  bring_values(begin);
  bring_keys(begin + 1);
  copies_end();
  uint32_t limit[2], weights[4][4];
  limits(tile, m, limit);
  float s[8][4], next[8][4];
  arrived<1>(0, kPromptThreads);
  score_block<kDim>(s, queries, shared_at(keys + begin % 2 * kHalf));
  products_end(s);
  for (uint32_t b = begin; b < blocks; ++b) {
    arrived<0>(0, kPromptThreads);
    bring_values(b + 1);
    bring_keys(b + 2);
    copies_end();
    if (b + 1 < blocks) score_block<kDim>(next, queries, shared_at(keys + (b + 1) % 2 * kHalf));
    soften_block(s, b * kPositions, limit, a.window, r, weights);
    products_end(next);
    weigh_block<kDim>(weights, shared_at(values + b % 2 * kHalf), r);
#pragma unroll
    for (int i = 0; i < 32; ++i) s[i / 4][i % 4] = next[i / 4][i % 4];
  }
}

// Each warpgroup walks through every second block, with its own keys and values. Keys of the next block are copied
// while values are weighted, and values while keys are scored.
template <int kDim>
__device__ inline void walk_in_turns(const Attention& a, const swy_step* step, const Tile& tile, char* memory,
                                     Running<kDim>& r) {
  constexpr uint32_t kHalf = panels_bytes(kDim, kPositions);
  const uint32_t group = threadIdx.x / kGroup, warp = threadIdx.x % kGroup / 32, m = warp * 16 + threadIdx.x % 32 / 4;
  const uint32_t begin = tile.first_block(a) + group, blocks = tile.blocks();
  char* keys = memory + panels_bytes(kDim, 64) + group * 2 * kHalf;
  Pages<kDim, kGroup / 32> pages(a, step, tile, warp, begin);
  const auto bring = [&](uint32_t block, bool values) {
    if (block < blocks) {
      if (!values) pages.find(a, step, tile.kv, block, 2);
      pages.bring(a, step, block, values, values ? keys + kHalf : keys);
    }
    copies_end();
  };
  bring_queries<kDim>(a, tile, 64, memory);
  bring(begin, false);
  bring(begin, true);
  uint32_t limit[2], weights[4][4];
  limits(tile, m, limit);
  arrived<1>(0, kPromptThreads);  // the queries, of which each warpgroup has brought half
  for (uint32_t b = begin; b < blocks; b += 2) {
    arrived<1>(1 + group, kGroup);
    float s[8][4];
    score_block<kDim>(s, shared_at(memory), shared_at(keys));
    products_end(s);
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kGroup) : "memory");
    bring(b + 2, false);
    soften_block(s, b * kPositions, limit, a.window, r, weights);
    arrived<1>(1 + group, kGroup);
    weigh_block<kDim>(weights, shared_at(keys) + kHalf, r);
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kGroup) : "memory");
    bring(b + 2, true);
  }
  copies_wait<0>();
}

#endif

// blockIdx.x: tiles; blockIdx.y: KV head.
template <int kDim, int kSplit>
__global__ void __launch_bounds__(kPromptThreads, 1)
    attend_groups(const __grid_constant__ Attention a, const swy_step* step) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) char memory[];
  release_next();
  const Tile tile = tile_of(a, step, kTileQueries / kSplit);
  depend();
  if (tile.part.rows == 0) return;
  Running<kDim> r;
  clear(r);
  if (tile.part.active) {
    if constexpr (kSplit == 1) {
      walk_together<kDim>(a, step, tile, memory, r);
    } else {
      walk_in_turns<kDim>(a, step, tile, memory, r);
    }
  }
  sum_quads(r);
  if constexpr (kSplit == 2) {
    __syncthreads();
    join_teams<kDim>(threadIdx.x < kGroup, r, reinterpret_cast<float*>(memory));
    if (threadIdx.x >= kGroup) return;
  }
  give<kDim>(a, tile, threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, r);
#endif
}

template <int kDim, int kSplit>
swy_status record_tiles(const Recording& r, const Attention& a) {
  const uint32_t tiles = part_numbers(r.bucket(), kTileQueries / kSplit / a.per_kv());
  return launch(r, attend_groups<kDim, kSplit>, dim3(tiles, a.kv_heads), kPromptThreads, shared_bytes(kDim, kSplit), a,
                r.list.step);
}

template <int kDim>
swy_status record_dim(const Recording& r, const Attention& a) {
  return cuts_tiles(r, a) ? record_tiles<kDim, 2>(r, a) : record_tiles<kDim, 1>(r, a);
}

swy_status record(const Recording& r) {
  const Attention a = prompt_attention_of(r);
  SWY_CUDA_TRY(record_prepare(r, a, r.bucket().rows));
  return a.head_dim == 64 ? record_dim<64>(r, a) : a.head_dim == 128 ? record_dim<128>(r, a) : record_dim<256>(r, a);
}

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  if (!is_hopper(device)) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "needs the wgmma of compute capability 9.0");
  }
  return supports_prompt(device, op, bucket, error);
}

double cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return prompt_cost(device, op, bucket, 4e8, 0.7);
}

constexpr Kernel kKernels[] = {{.name = "attention.wgmma",
                                .op = SWY_OP_ATTENTION,
                                .flags = kAlways,
                                .activations = SWY_BF16,
                                .supports = supports,
                                .cost = cost,
                                .workspace = prompt_workspace,
                                .record = record,
                                .op_revision = 2}};

}  // namespace

std::span<const Kernel> attention_wgmma_kernels() { return kKernels; }

}  // namespace gpu
