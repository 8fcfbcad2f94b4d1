// SPDX-License-Identifier: Apache-2.0
// ATTENTION of prompts, keys and values in bf16 (in 8 bits: attention_expand.cu), by m16n8k16: a warp has 16 queries of
// a tile.
//
// With kSplit 2 a tile has half as many queries. The two halves of every block of positions go to two teams of warps,
// which join their results at the end. This makes more and shorter tiles.
#include "attention_prompt.cuh"

namespace gpu {
namespace {

constexpr uint32_t kWarps = kPromptThreads / 32, kBuffers = 2;

// Queries, then keys and values of each buffer.
constexpr uint32_t shared_bytes(uint32_t dim, uint32_t split) {
  return panels_bytes(dim, kTileQueries / split + kBuffers * 2 * kPositions);
}

// One team's part of a block of positions, from `first` on.
template <int kDim, int kSplit>
__device__ inline void attend_block(uint32_t queries, uint32_t keys, uint32_t m, uint32_t team, uint32_t first,
                                    const uint32_t (&limit)[2], uint32_t window, Running<kDim>& r) {
  constexpr uint32_t kSpan = kPositions / kSplit;
  const uint32_t values = keys + panels_bytes(kDim, kPositions);
  float s[kSpan / 8][4] = {};
#pragma unroll
  for (uint32_t k = 0; k < kDim; k += 16) {
    uint32_t a[4], b[4];
    first_operand<8>(a, queries + m / 64 * panels_bytes(kDim, 64) + k / 64 * kPanel, m % 64, k % 64);
#pragma unroll
    for (uint32_t n = 0; n < kSpan / 16; ++n) {
      second_operand<8>(b, keys + k / 64 * kPanel, team * kSpan + n * 16, k % 64);
      matrix_multiply(s[2 * n], a, b[0], b[1]);
      matrix_multiply(s[2 * n + 1], a, b[2], b[3]);
    }
  }
  mask(s, first, limit, window);
  soften<kDim>(s, r);
#pragma unroll
  for (uint32_t k = 0; k < kSpan / 16; ++k) {
    uint32_t a[4], b[4];
    as_operand(a, s[2 * k], s[2 * k + 1]);
#pragma unroll
    for (uint32_t n = 0; n < kDim / 16; ++n) {
      second_transposed<8>(b, values + n / 4 * kPanel, team * kSpan + k * 16, n % 4 * 16);
      matrix_multiply(r.out[2 * n], a, b[0], b[1]);
      matrix_multiply(r.out[2 * n + 1], a, b[2], b[3]);
    }
  }
}

// blockIdx.x: tiles; blockIdx.y: KV head.
template <int kDim, int kSplit>
__global__ void __launch_bounds__(kPromptThreads, 1)
    attend_prompt(const __grid_constant__ Attention a, const swy_step* step) {
  extern __shared__ __align__(128) char memory[];
  constexpr uint32_t kQueries = kTileQueries / kSplit, kBuffer = 2 * panels_bytes(kDim, kPositions);
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, team = warp / (kWarps / kSplit);
  const uint32_t m = warp % (kWarps / kSplit) * 16;
  release_next();
  const Tile tile = tile_of(a, step, kQueries);
  depend();
  if (tile.part.rows == 0) return;
  Running<kDim> r;
  clear(r);
  if (tile.part.active) {
    char* buffers = memory + panels_bytes(kDim, kQueries);
    const uint32_t begin = tile.first_block(a), blocks = tile.blocks();
    Pages<kDim, kWarps> pages(a, step, tile, warp, begin);
    const auto bring = [&](uint32_t block) {
      char* keys = buffers + block % kBuffers * kBuffer;
      pages.find(a, step, tile.kv, block, 1);
      pages.bring(a, step, block, false, keys);
      pages.bring(a, step, block, true, keys + kBuffer / 2);
      copies_end();
    };
    bring_queries<kDim>(a, tile, kQueries, memory);
    bring(begin);
    uint32_t limit[2];
    limits(tile, m + lane / 4, limit);
    for (uint32_t b = begin; b < blocks; ++b) {
      copies_wait<0>();
      __syncthreads();
      if (b + 1 < blocks) bring(b + 1);
      attend_block<kDim, kSplit>(shared_at(memory), shared_at(buffers + b % kBuffers * kBuffer), m, team,
                                 b * kPositions + team * (kPositions / kSplit), limit, a.window, r);
    }
  }
  sum_quads(r);
  if constexpr (kSplit == 2) {
    __syncthreads();
    join_teams<kDim>(team == 0, r, reinterpret_cast<float*>(memory));
  }
  if (team == 0) give<kDim>(a, tile, m + lane / 4, r);
}

template <int kDim, int kSplit>
swy_status record_tiles(const Recording& r, const Attention& a) {
  const uint32_t tiles = part_numbers(r.bucket(), kTileQueries / kSplit / a.per_kv());
  return launch(r, attend_prompt<kDim, kSplit>, dim3(tiles, a.kv_heads), kPromptThreads, shared_bytes(kDim, kSplit), a,
                r.list.step);
}

template <int kDim>
swy_status record_dim(const Recording& r, const Attention& a) {
  const bool cut = cuts_tiles(r, a) || r.device().features.block_memory < shared_bytes(kDim, 1);
  return cut ? record_tiles<kDim, 2>(r, a) : record_tiles<kDim, 1>(r, a);
}

swy_status record(const Recording& r) {
  Attention a = prompt_attention_of(r);
  SWY_CUDA_TRY(record_prompt_pages(r, a));
  return a.head_dim == 64 ? record_dim<64>(r, a) : a.head_dim == 128 ? record_dim<128>(r, a) : record_dim<256>(r, a);
}

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  const uint32_t dim = attention_attrs(op).head_dim;
  if (device.features.block_memory < shared_bytes(dim, 2)) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "needs %u bytes of shared memory in a block",
                     shared_bytes(dim, 2));
  }
  return supports_prompt(device, op, bucket, error);
}

double cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return prompt_cost(device, op, bucket, 2.5e8, 1.3);
}

// Parts of the workspace; returns its size.
uint64_t place(Attention& a, void* workspace, const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  const auto& at = attention_attrs(op);
  Arena arena(workspace);
  a.ready = arena.take<uint16_t>(uint64_t{bucket.rows} * at.heads * at.head_dim);
  a.expanded = arena.take<uint16_t>(expanded_elements(device, op, bucket));
  return arena.used();
}

constexpr Kernel kKernels[] = {{.name = "attention.prompt",
                                .op = SWY_OP_ATTENTION,
                                .flags = kAlways,
                                .activations = SWY_BF16,
                                .supports = supports,
                                .cost = cost,
                                .workspace = prompt_workspace,
                                .record = record,
                                .op_revision = 2}};

}  // namespace

Attention prompt_attention_of(const Recording& r) {
  Attention a = attention_of(r, false);
  a.packed = true;
  a.scale *= kLog2E;
  place(a, r.operands.workspace(), r.device(), r.op, r.bucket());
  return a;
}

swy_status record_prompt_pages(const Recording& r, Attention& a) {
  SWY_CUDA_TRY(record_prepare(r, a, r.bucket().rows));
  return record_expand(r, a);
}

swy_status supports_prompt(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  const auto& a = attention_attrs(op);
  SWY_CUDA_TRY(needs_rounded_kv(device, error));
  if (bucket.rows > 65535) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "takes at most 65535 rows, the bucket has %u",
                     bucket.rows);
  }
  if ((a.head_dim == 64 || a.head_dim == 128 || a.head_dim == 256) && a.rotary_dim <= kMostRotary &&
      a.heads / a.kv_heads <= kTileQueries / 2) {
    return SWY_OK;
  }
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                   "head_dim is %u, %u query heads per KV head; it must be 64, 128 or 256, and they %u at most",
                   a.head_dim, a.heads / a.kv_heads, kTileQueries / 2);
}

double prompt_cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket, double rate, double block) {
  const auto& a = attention_attrs(op);
  const double context = most_read(op, bucket),
               before = context - 0.5 * (bucket.rows < context ? bucket.rows : context);
  const double products = device.rates.products(4.0 * bucket.rows * before * a.heads * a.head_dim, rate);
  const double longest = context / double{kPositions} * block;
  // If no rows share keys, the cost is bytes.
  const bool alone = (bucket.flags & SWY_BUCKET_DECODE) != 0;
  const double keys = alone ? device.rates.bytes(4.0 * bucket.rows * context * a.kv_heads * a.head_dim, 3.8e6) : 0;
  const double walk = products > longest ? products : longest;
  return 15.5 + device.rates.bytes(row_bytes(op), 2.8e6) + expand_cost(device, op, bucket) +
         (walk > keys ? walk : keys);
}

uint64_t prompt_workspace(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  Attention a{};
  return place(a, nullptr, device, op, bucket);
}

std::span<const Kernel> attention_prompt_kernels() { return kKernels; }

}  // namespace gpu
