// SPDX-License-Identifier: Apache-2.0
// ATTENTION of prompts, keys and values in bf16 (in 8 bits: attention_expand.cu), by Hopper's wgmma: a warpgroup has 64
// queries, and one more warp asks the copy engine for keys and values (attention_boxes.cuh).
//
// With kSplit 1 two warpgroups read the same keys and values, each with its own queries. With kSplit 2 they have the
// same queries, take turns with the blocks of positions, and join at the end: more and shorter tiles. PTX ISA, section
// on wgmma: keys are its second operand as they lie in memory, values are transposed, weights come from registers.
#include "attention_boxes.cuh"

namespace gpu {
namespace {

constexpr uint32_t kGroup = 128, kThreads = kPromptThreads + kGroup;  // of a warpgroup; of a block

constexpr uint32_t shared_bytes(uint32_t dim, uint32_t split) {
  return panels_bytes(dim, kTileQueries / split) + prompt_boxes_bytes(dim);
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// 16 columns of a panel as an operand [64, 16], or 16 rows of it as the transposed one.
__device__ inline uint64_t panel_descriptor(uint32_t at) {
  return uint64_t{1} << 62 | uint64_t{1024 >> 4} << 32 | uint64_t{kPanel >> 4} << 16 | (at & 0x3ffff) >> 4;
}

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
__device__ inline void score_block(float (&s)[8][4], uint64_t queries, uint64_t keys) {
  products_begin();
#pragma unroll
  for (uint32_t k = 0; k < kDim / 16; ++k) {
    const uint32_t at = (k / 4 * kPanel + k % 4 * 32) >> 4;
    score(s, queries + at, keys + at, k > 0);
  }
  products_commit();
}
template <int kDim>
__device__ inline void weigh_block(const uint32_t (&weights)[4][4], uint64_t values, Running<kDim>& r) {
  products_begin();
#pragma unroll
  for (uint32_t k = 0; k < 4; ++k) {
#pragma unroll
    for (uint32_t p = 0; p < kDim / 64; ++p) {
      weigh(r.out + 8 * p, weights[k], values + ((p * kPanel + k * 2048) >> 4));
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

// A warpgroup walks through its blocks of positions. While a block's scores become weights, the products of its next
// one run.
template <int kDim, int kSplit>
__device__ inline void walk(const Attention& a, const Tile& tile, const PromptBoxes<kDim>& boxes, uint32_t group,
                            uint32_t queries, Running<kDim>& r) {
  const uint32_t begin = tile.first_block(a), blocks = tile.blocks();
  const uint32_t m = threadIdx.x / 32 % (kSplit == 2 ? 4 : 8) * 16 + threadIdx.x % 32 / 4;
  const uint64_t x = panel_descriptor(queries);
  uint32_t limit[2], weights[4][4];
  limits(tile, m, limit);
  float s[8][4], next[8][4];
  uint32_t b = begin + (kSplit == 2 ? group : 0);
  if (b >= blocks) return;
  boxes.wait_keys(b - begin);
  score_block<kDim>(s, x, panel_descriptor(boxes.keys(b - begin)));
  products_end(s);
  boxes.keys_read(b - begin);
  for (; b < blocks; b += kSplit) {
    const uint32_t later = b - begin + kSplit;
    const bool more = b + kSplit < blocks;
    if (more) {
      boxes.wait_keys(later);
      score_block<kDim>(next, x, panel_descriptor(boxes.keys(later)));
    }
    soften_block(s, b * kPositions, limit, a.window, r, weights);
    products_end(next);
    if (more) boxes.keys_read(later);
    boxes.wait_values(b - begin);
    weigh_block<kDim>(weights, panel_descriptor(boxes.values(b - begin)), r);
    boxes.values_read(b - begin);
#pragma unroll
    for (int i = 0; i < 32; ++i) s[i / 4][i % 4] = next[i / 4][i % 4];
  }
}

#endif

// blockIdx.x: tiles; blockIdx.y: KV head. map: of the pool, as map_pool makes it.
template <int kDim, int kSplit>
__global__ void __launch_bounds__(kThreads, 1)
    attend_groups(const __grid_constant__ CUtensorMap map, const __grid_constant__ Attention a, const swy_step* step) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) char memory[];
  release_next();
  const Tile tile = tile_of(a, step, kTileQueries / kSplit);
  const PromptBoxes<kDim> boxes(memory + panels_bytes(kDim, kTileQueries / kSplit), kSplit == 1 ? 2 : 1);
  depend();
  if (tile.part.rows == 0) return;
  const uint32_t group = __shfl_sync(kAll, threadIdx.x / kGroup, 0);
  if (group == kPromptThreads / kGroup) {
    fewer_registers<24>();
    if (tile.part.active && threadIdx.x < kPromptThreads + 32) boxes.bring(map, a, step, tile);
    return;
  }
  more_registers<240>();
  Running<kDim> r;
  clear(r);
  if (tile.part.active) {
    bring_queries<kDim>(a, tile, kTileQueries / kSplit, memory);
    copies_end();
    copies_wait<0>();
    stores_visible_to_copies();  // and to products
    meet_queries();
    const uint32_t own = kSplit == 1 ? group * panels_bytes(kDim, 64) : 0;
    walk<kDim, kSplit>(a, tile, boxes, group, shared_at(memory) + own, r);
  }
  sum_quads(r);
  if constexpr (kSplit == 2) {
    meet_queries();
    join_teams<kDim>(group == 0, r, reinterpret_cast<float*>(memory));
    if (group != 0) return;
  }
  give<kDim>(a, tile, threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, r);
#endif
}

template <int kDim, int kSplit>
swy_status record_tiles(const Recording& r, const Attention& a) {
  const uint32_t tiles = part_numbers(r.bucket(), kTileQueries / kSplit / a.per_kv());
  CUtensorMap map;
  SWY_CUDA_TRY(map_pool(r, a, &map));
  return launch(r, attend_groups<kDim, kSplit>, dim3(tiles, a.kv_heads), kThreads, shared_bytes(kDim, kSplit), map, a,
                r.list.step);
}

template <int kDim>
swy_status record_dim(const Recording& r, const Attention& a) {
  return cuts_tiles(r, a) ? record_tiles<kDim, 2>(r, a) : record_tiles<kDim, 1>(r, a);
}

swy_status record(const Recording& r) {
  Attention a = prompt_attention_of(r);
  SWY_CUDA_TRY(record_prompt_pages(r, a));
  return a.head_dim == 64 ? record_dim<64>(r, a) : a.head_dim == 128 ? record_dim<128>(r, a) : record_dim<256>(r, a);
}

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  SWY_CUDA_TRY(needs_wgmma(device, error));
  if (bucket.page_size < 2 || (bucket.page_size & (bucket.page_size - 1)) != 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "pages have %u tokens; it must be a power of two, and more than one", bucket.page_size);
  }
  return supports_prompt(device, op, bucket, error);
}

double cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return prompt_cost(device, op, bucket, 6e8, 0.7);
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
