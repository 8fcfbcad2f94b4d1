// SPDX-License-Identifier: Apache-2.0
// RMS_NORM_LINEAR, LINEAR and LINEAR_ADD of up to four rows (boxes.cuh).
//
// A block has some tiles of 16 rows, and all of their columns in shared memory before the previous kernels have ended.
// Further blocks have up to 16 rows of a plain weight each (the gates of the delta rule), or logits of the router
// behind the projection.
#include "linear_plain.cuh"
#include "linear_router.cuh"

#include <algorithm>

namespace gpu {
namespace {

// Of four rows, the kernels around this one leave it half of the registers (64 a thread); otherwise boxes.cuh says how
// many.
template <bool kHeads, uint32_t kTeams, uint32_t kRows>
__global__ void __launch_bounds__(kRows == kQuad ? kSliceThreads : kBesideThreads, 2)
    linear_boxes(const __grid_constant__ Maps maps, const __grid_constant__ Boxes b, const swy_step* step) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ char dynamic[];
  if constexpr (kHeads) {
    multiply_heads<kTeams, kRows, true>(maps, b, step, dynamic);
  } else if (blockIdx.x < b.tile_blocks) {
    multiply_block<kTeams, kRows, true>(maps, b, step, dynamic);
  } else if constexpr (kTeams == 2) {
    multiply_plain<kRows, true>(b, step, dynamic);
  }
#endif
}

// With parts of heads, too: attention's blocks leave half of the registers, and so many are needed.
template <bool kHeads, uint32_t kTeams, uint32_t kRows, bool kParts = false>
__global__ void __launch_bounds__(kRows == kQuad || kParts ? kSliceThreads : kBesideThreads, 2)
    linear_boxes_router(const __grid_constant__ Maps maps, const __grid_constant__ Boxes b,
                        const __grid_constant__ RouterBlocks router, const swy_step* step) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ char dynamic[];
  if (blockIdx.x >= b.tile_blocks) {
    multiply_router<kHeads, kTeams, kRows, kParts>(router, b, step, dynamic);
  } else if constexpr (kHeads) {
    multiply_heads<kTeams, kRows, true>(maps, b, step, dynamic);
  } else {
    multiply_block<kTeams, kRows, true, kParts>(maps, b, step, dynamic);
  }
#endif
}

// The same by cp.async, in blocks of which a multiprocessor has two.
constexpr uint32_t kAsyncBlocks = 2, kAsyncDeclared = 4096;  // at least the memory that such a kernel declares
template <bool kHeads, uint32_t kTeams, uint32_t kRows>
__global__ void __launch_bounds__(kSliceThreads, kAsyncBlocks)
    linear_async(const __grid_constant__ Boxes b, const swy_step* step) {
  extern __shared__ char dynamic[];
  const Maps none{};
  if constexpr (kHeads) {
    multiply_heads<kTeams, kRows, false>(none, b, step, dynamic);
  } else if (blockIdx.x < b.tile_blocks) {
    multiply_block<kTeams, kRows, false>(none, b, step, dynamic);
  } else if constexpr (kTeams == 2) {
    multiply_plain<kRows, false>(b, step, dynamic);
  }
}

// Tiles per block, so that all blocks run at once: one block on a multiprocessor with the copy engine, otherwise two.
// If these have too little memory, they run one after the other.
uint32_t tiles_per_block(const swy_device& device, uint32_t tiles, uint32_t others, uint32_t slices) {
  if (!boxes_by_engine(device)) {
    const Features& card = device.features;
    const uint32_t places = kAsyncBlocks * static_cast<uint32_t>(device.processors);
    const uint32_t tile = Share<1>::kColumns / teams_of(slices) * (kTileBytes + kTileRows * kSlice / 64 * 4);
    const uint32_t room = card.processor_memory / kAsyncBlocks - card.reserved - kAsyncDeclared;
    const uint32_t most = std::min(std::max(room / tile, teams_of(slices)), kMostTiles);
    return std::min(std::max(ceil_div(tiles, places > others ? places - others : 1), teams_of(slices)), most);
  }
  const auto all = static_cast<uint32_t>(device.processors);
  return ceil_div(tiles, all > others ? all - others : 1);
}

uint32_t shared_bytes(uint32_t slices, uint32_t tiles, uint32_t scale_bytes, uint32_t rows) {
  const uint32_t teams = teams_of(slices), columns = kSliceWarps / teams;
  const size_t exchange = rows > 2 ? sizeof(QuadMemory) : rows == 2 ? sizeof(PairMemory) : 0;
  return static_cast<uint32_t>(1024 + (columns * kTileBytes + scale_bytes) * tiles + columns * exchange);
}

// A kernel's memory besides what its launch asks for, in the units in which it is given.
swy_status static_memory(const void* kernel, uint32_t* bytes, swy_error* error) {
  cudaFuncAttributes attributes{};
  const cudaError_t e = cudaFuncGetAttributes(&attributes, kernel);
  *bytes = ceil_div(static_cast<uint32_t>(attributes.sharedSizeBytes), 128) * 128;
  return check(e, "asking for a kernel's memory", error);
}

double cost(const swy_device& device, const swy_op& op, const swy_bucket&) {
  double bytes = 0;
  for (uint32_t i = 0; i < op.weight_count; ++i) bytes += weight_bytes(*op.weights[i]);
  return 2.0 + 0.7 * static_cast<double>(swy::tensor(op, "x").dims[0] - 1) + device.rates.bytes(bytes, 3.6e6);
}

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  return supports_boxes(device, op, op.id == SWY_OP_RMS_NORM_LINEAR ? 1 : 0, error);
}
swy_status record(const Recording& r) { return record_boxes(r, linear_projection(r), nullptr); }

constexpr Kernel kernel(const char* name, uint32_t op) {
  return {name, op, kAlways, SWY_BF16, supports, cost, nullptr, record};
}
constexpr Kernel kKernels[] = {kernel("linear.boxes", SWY_OP_LINEAR), kernel("linear_add.boxes", SWY_OP_LINEAR_ADD),
                               kernel("rms_norm_linear.boxes", SWY_OP_RMS_NORM_LINEAR)};

}  // namespace

swy_status supports_boxes(const swy_device& device, const swy_op& op, uint32_t first_weight, swy_error* error,
                          uint32_t others) {
  if (swy::tensor(op, "x").dims[0] > kQuad) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "serves steps of up to %u rows", kQuad);
  }
  const auto rows = static_cast<uint32_t>(swy::tensor(op, "x").dims[0]),
             width = static_cast<uint32_t>(swy::tensor(op, "x").dims[1]);
  uint32_t tiles = 0, plain = 0, quantized = 0;
  Weight like{};
  for (uint32_t i = first_weight; i < op.weight_count; ++i) {
    const Weight w = weight_of(*op.weights[i], nullptr);
    if (!is_quantized(w.dtype)) {
      plain += plain_blocks(w.rows);
      continue;
    }
    if (quantized++ == 0) like = w;
    if (!(boxes_by_engine(device) ? in_boxes(w) : in_slices(w)) || w.dtype != like.dtype || w.groups != like.groups) {
      return swy::fail(
          error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
          "weight %u (%u x %u) is not, like the others, of 4 bits in tiles of 16 x 256 and groups of 64 or "
          "a multiple",
          i, w.rows, w.width);
    }
    tiles += ceil_div(w.rows, kTileRows);
  }
  others += plain;
  const uint32_t each = tiles_per_block(device, tiles, others, width / kSlice);
  if (quantized == 0 || quantized > kMostWeights || each > kMostTiles || width > kSliceWarps * kSlice ||
      (plain != 0 && width > kPlainWarps * kSlice) ||
      (plain != 0 && rows > 1 && boxes_by_engine(device) && kPlainMemory > device.features.block_memory / 2) ||
      shared_bytes(width / kSlice, each, scales_bytes(like, kTileRows), rows) >
          (boxes_by_engine(device) ? device.features.block_memory / 2 : device.features.block_memory)) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "%u tiles of 16 rows of %u columns, and %u further blocks, do not fit the device", tiles, width,
                     others);
  }
  return SWY_OK;
}

swy_status record_boxes(const Recording& r, const Projection& p, const HeadNorm* heads, const RouterRows* router,
                        const HeadParts* parts) {
  Boxes b{};
  Maps maps{};
  b.p = p;
  if (parts != nullptr) b.parts = *parts;
  if (heads != nullptr) {
    b.heads = *heads;
    b.squares = p.width / heads->dim * head_parts(heads->dim);
  }
  const bool engine = boxes_by_engine(r.device());
  uint32_t next = 0, others = 0;
  for (uint32_t i = 0; i < p.count; ++i) {
    const Weight& w = p.weights[i];
    b.quantized[i] = is_quantized(w.dtype);
    b.p.first_task[i + 1] = b.p.first_task[i] + (b.quantized[i] ? ceil_div(w.rows, kTileRows) : 0);
    if (!b.quantized[i]) {
      others += plain_blocks(w.rows);
      continue;
    }
    b.like = w;
    b.scale_bytes = scales_bytes(w, kTileRows);
    b.map[i] = next;
    if (engine) SWY_CUDA_TRY(map_boxes(w, kTileRows, &maps.of[next++], r.error));
  }
  RouterBlocks behind{};
  if (router != nullptr) {
    others += router_blocks(router->rows());
    behind.of = *router;
    SWY_CUDA_TRY(map_boxes(router->through, kTileRows, &behind.map, r.error));
  }
  const uint32_t tiles = b.p.first_task[p.count];
  b.tiles = tiles_per_block(r.device(), tiles, others, b.slices());
  b.per_dim = 1.0f / static_cast<float>(heads != nullptr ? heads->dim : p.width);
  b.tile_blocks = ceil_div(tiles, b.tiles);
  const uint32_t blocks = b.tile_blocks + others;
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "x").dims[0]);
  const uint32_t needed = std::max(shared_bytes(b.slices(), b.tiles, b.scale_bytes, rows),
                                   router != nullptr ? router_shared(b.slices(), b.scale_bytes, rows) : 0);
  // Of two rows, the registers of two blocks of the delta rule leave room for one of these; what memory they do not
  // need is for two blocks of gate_up.
  const bool alone = router == nullptr || heads == nullptr || rows != 2;
  const auto go = [&](auto kernel, const auto&... more) -> swy_status {
    // Attention of several rows fits beside a block that has just more than half of the memory.
    uint32_t own = 0;
    if (rows > 1) SWY_CUDA_TRY(static_memory(reinterpret_cast<const void*>(kernel), &own, r.error));
    const uint32_t shared = alone ? std::max(needed, alone_memory(r.device()) - own) : needed;
    return launch(r, kernel, blocks, kSliceThreads, shared, maps, b, more..., r.list.step);
  };
  const auto routed = [&]<bool kHeads, uint32_t kRows>() {
    return teams_of(b.slices()) == 2 ? go(linear_boxes_router<kHeads, 2, kRows>, behind)
                                     : go(linear_boxes_router<kHeads, 1, kRows>, behind);
  };
  if (parts != nullptr) {
    return teams_of(b.slices()) == 2 ? go(linear_boxes_router<false, 2, 1, true>, behind)
                                     : go(linear_boxes_router<false, 1, 1, true>, behind);
  }
  if (router != nullptr && heads != nullptr) {
    return rows == 1   ? routed.template operator()<true, 1>()
           : rows == 2 ? routed.template operator()<true, 2>()
                       : routed.template operator()<true, kQuad>();
  }
  if (router != nullptr) {
    return rows == 1   ? routed.template operator()<false, 1>()
           : rows == 2 ? routed.template operator()<false, 2>()
                       : routed.template operator()<false, kQuad>();
  }
  const auto teams = [&]<bool kHeads, uint32_t kRows>() {
    if (!engine) {
      return launch(r, teams_of(b.slices()) == 2 ? linear_async<kHeads, 2, kRows> : linear_async<kHeads, 1, kRows>,
                    blocks, kSliceThreads, needed, b, r.list.step);
    }
    return teams_of(b.slices()) == 2 ? go(linear_boxes<kHeads, 2, kRows>) : go(linear_boxes<kHeads, 1, kRows>);
  };
  if (heads != nullptr) {
    return rows == 1   ? teams.template operator()<true, 1>()
           : rows == 2 ? teams.template operator()<true, 2>()
                       : teams.template operator()<true, kQuad>();
  }
  return rows == 1   ? teams.template operator()<false, 1>()
         : rows == 2 ? teams.template operator()<false, 2>()
                     : teams.template operator()<false, kQuad>();
}

std::span<const Kernel> linear_boxes_kernels() { return kKernels; }

}  // namespace gpu
