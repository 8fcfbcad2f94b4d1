// SPDX-License-Identifier: Apache-2.0
// Two projections and their sum, by boxes of their weights (boxes.cuh).
//
// A block has some tiles of 16 rows of both weights. The first eight warps multiply those of the embedding's weight,
// a slice each, the others those of the other rows' weight. Each half has a norm of its own, so the block adds up the
// halves' sums one by one.
#include "linear_two.h"

#include <algorithm>

#include "common/slices_quad.cuh"

namespace gpu {
namespace {

constexpr uint32_t kSides = 2, kSideWarps = kSliceWarps / kSides, kMostTilesOfTwo = 4;

struct Two {
  TwoInputs in;
  const int32_t* tokens;
  uint32_t tiles, all_tiles;  // of a block, and of a weight
  uint32_t scale_bytes;       // of a tile
  float per_width;            // 1 over the width
};
struct TwoMaps {
  CUtensorMap of[kSides];
};

__host__ __device__ constexpr uint32_t shared_bytes(uint32_t tiles, uint32_t scale_bytes, uint32_t rows) {
  return 1024 + tiles * (kSliceWarps * kTileBytes + kSides * scale_bytes) +
         (rows > 1 ? kSliceWarps * static_cast<uint32_t>(sizeof(QuadMemory)) : 0);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ inline uint32_t slices_of(const Two& b) { return b.in.table.width / kSlice; }

// Elements `column` to `column` + 7 of a row of the table: if of 4 bits, a word with one scale.
__device__ inline void load_entry(const Two& b, uint32_t id, uint32_t column, float (&v)[8]) {
  const Weight& w = b.in.table;
  if (w.dtype == SWY_F32 || w.dtype == SWY_BF16) return plain_eight(w, (uint64_t{id} * w.width + column) / 8, v);
  const uint64_t at = uint64_t{id} * w.groups + column / w.group;
  const uint32_t word = *reinterpret_cast<const uint32_t*>(w.data + uint64_t{id} * w.row_bytes + column / 2);
  const uint16_t scale_bits = w.scales[at], offset_bits = w.offsets != nullptr ? w.offsets[at] : uint16_t{0};
  const float scale = half_bits(scale_bits), offset = w.offsets != nullptr ? half_bits(offset_bits) : -8 * scale;
#pragma unroll
  for (uint32_t j = 0; j < 8; ++j) v[j] = fmaf(static_cast<float>((word >> (4 * j)) & 15), scale, offset);
}

// The table's rows of the step's tokens.
template <uint32_t kRows>
__device__ inline void find_entries(const Two& b, const swy_step* step, uint32_t rows, uint32_t (&id)[kRows]) {
  const int32_t* of_rows = step_array<int32_t>(step, step->row_token_at);
  int32_t token[kRows];
#pragma unroll
  for (uint32_t m = 0; m < kRows; ++m) token[m] = m < rows ? of_rows[m] : 0;
#pragma unroll
  for (uint32_t m = 0; m < kRows; ++m) id[m] = entry_of(token[m], b.tokens, b.in.table);
}

// A lane's eight elements of a slice of rows `first` to `first` + kCount - 1: of the table's rows, or of the other
// ones.
template <uint32_t kCount>
__device__ inline void load_inputs(const Two& b, uint32_t rows, uint32_t side, const uint32_t* id, uint32_t first,
                                   uint32_t column, float (&v)[kCount][8]) {
#pragma unroll
  for (uint32_t m = 0; m < kCount; ++m) {
    if (first + m >= rows) continue;
    if (side == 0) {
      load_entry(b, id[first + m], column, v[m]);
    } else {
      load_eight_fresh(b.in.rows + uint64_t{first + m} * b.in.table.width + column, v[m]);
    }
  }
}

// Requests a warp's tiles, and the first warp also all scales, for which the block meets later.
__device__ inline void ask_tiles(const TwoMaps& maps, const Two& b, char* boxes, char* scales, uint32_t first,
                                 uint32_t tiles, Asked& arrived, Asked& scales_arrived) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, side = warp / kSideWarps, slice = warp % kSideWarps;
  if (lane == 0) {
    arrived.init();
    if (warp == 0) scales_arrived.init();
    publish_barriers();
    if (slice < slices_of(b)) {
      arrived.expect(tiles * kTileBytes);
      for (uint32_t i = 0; i < tiles; ++i) {
        arrived.ask(boxes + i * kTileBytes, maps.of[side], slice * kBoxBytes, (first + i) * kTileRows);
      }
    }
    if (warp == 0) scales_arrived.expect(kSides * tiles * b.scale_bytes);
  }
  __syncwarp();
  if (warp == 0 && lane < kSides * tiles) {
    const uint32_t of = lane / tiles, tile = lane % tiles;
    scales_arrived.ask_scales(reinterpret_cast<uint16_t*>(scales + (of * b.tiles + tile) * b.scale_bytes),
                              b.in.weights[of], uint64_t{first + tile} * kTileRows, kTileRows);
  }
}

#endif

template <uint32_t kRows>
__global__ void __launch_bounds__(kRows == 1 ? kBesideThreads : kSliceThreads, 2)
    linear_two(const __grid_constant__ TwoMaps maps, const __grid_constant__ Two b, const swy_step* step) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ char dynamic[];
  __shared__ Asked arrived[kSliceWarps], scales_arrived;
  __shared__ __align__(16) float squares_of[kRows][kSides][kSideWarps];
  using Places = std::conditional_t<kRows == 1, ScalePlaces, PairPlaces>;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, side = warp / kSideWarps, slice = warp % kSideWarps;
  const uint32_t first = blockIdx.x * b.tiles, tiles = min(b.tiles, b.all_tiles - first);
  const bool exists = slice < slices_of(b);
  Stamps stamps(kStampNormed);
  char* boxes = first_box(dynamic);                           // [warp][tile]
  char* scales = boxes + kSliceWarps * b.tiles * kTileBytes;  // [side][tile]
  auto* memory = reinterpret_cast<QuadMemory*>(scales + kSides * b.tiles * b.scale_bytes) + warp;
  char* mine = boxes + warp * b.tiles * kTileBytes;
  release_next();
  ask_tiles(maps, b, mine, scales, first, tiles, arrived[warp], scales_arrived);
  stamps.note(kAsked);
  const uint32_t own = shared_at(mine), in_box = lane_of_box(), share = share_of_lane();
  const uint32_t joined = shares_of_row(shared_at(boxes)), apart = b.tiles * kTileBytes;
  const uint32_t column = slice * kSlice + lane * 8;
  const Places places(scales + side * b.tiles * b.scale_bytes, b.in.weights[side], slice, kTileRows, b.scale_bytes / 2);
  if (!exists) clear_shares(own, share, tiles);
  stamps.take_place();
  depend();  // early: as a rule no kernel is before this one, and what it reads first leads to what it reads next
  stamps.note(kWaited);
  const uint32_t rows = step->rows;
  Piece piece[kRows];
  float squares[kRows] = {};
  if (exists) {
    constexpr uint32_t kAtOnce = kRows == 1 ? 1 : 2;
    uint32_t id[kRows] = {};
    float factors[8];
    if (side == 0) find_entries(b, step, rows, id);
#pragma unroll
    for (uint32_t first_row = 0; first_row < kRows; first_row += kAtOnce) {
      float v[kAtOnce][8] = {};
      load_inputs(b, rows, side, id, first_row, column, v);
      if (first_row == 0) plain_eight(b.in.norms[side], column / 8, factors);
#pragma unroll
      for (uint32_t m = 0; m < kAtOnce; ++m) {
        float sum = 0;
#pragma unroll
        for (uint32_t j = 0; j < 8; ++j) sum = fmaf(v[m][j], v[m][j], sum);
        squares[first_row + m] = warp_sum(sum);
#pragma unroll
        for (uint32_t j = 0; j < 8; ++j) v[m][j] *= factors[j] + b.in.bias[side];
        piece[first_row + m] = make_piece(v[m]);
      }
    }
    stamps.note(kRead);
  }
  __syncthreads();  // all barriers are initialised
  if (exists) {
    barrier_wait(shared_at(&scales_arrived), 0);
    barrier_wait(shared_at(&arrived[warp]), 0);
    stamps.note(kArrived);
    if constexpr (kRows == 1) {
      const Operand x = make_operand(piece[0], 1.0f);
#pragma unroll 1
      for (uint32_t i = 0; i < tiles; ++i) {
        LaneScales<1> of;
        of.load(places, i);
        multiply_slice<1>(own + i * kTileBytes, in_box, share, of, places, i, x, 1);
      }
    } else {
      const QuadOperand x = make_quad_operand(
          *memory, [](uint32_t) { return true; }, [&](uint32_t round, uint32_t m) { return piece[2 * round + m]; },
          [] { __syncwarp(); });
#pragma unroll 1
      for (uint32_t i = 0; i < tiles; ++i) multiply_any_quad(own + i * kTileBytes, in_box, share, places, i, x);
    }
  }
  stamps.note(kMultiplied);
#pragma unroll
  for (uint32_t m = 0; m < kRows; ++m) {
    if (lane == 0) squares_of[m][side][slice] = squares[m];
  }
  __syncthreads();
  const uint32_t row = threadIdx.x / 4, x_row = threadIdx.x % 4 / (4 / kRows);
  if (row >= tiles * kTileRows) return;  // whole warps
  float sum = 0;
#pragma unroll
  for (uint32_t s = 0; s < kSides; ++s) {
    const float half = join_shares<kSideWarps, 4 / kRows>(joined + s * kSideWarps * apart, apart);
    sum = fmaf(half, inverse_root(squares_of[x_row][s], b.per_width, b.in.eps[s]), sum);
  }
  if (threadIdx.x % (4 / kRows) == 0 && x_row < rows) {
    b.in.y[uint64_t{x_row} * b.in.weights[0].rows + first * kTileRows + row] = sum;
  }
#endif
}

uint32_t tiles_per_block(const swy_device& device, const Weight& w) {
  return ceil_div(w.rows / kTileRows, static_cast<uint32_t>(device.processors));
}

Weight weight_in(const swy_op& op) { return weight_of(swy::tensor(op, "w"), nullptr); }

}  // namespace

swy_status supports_two(const swy_device& device, const TwoOps& ops, swy_error* error) {
  const auto rows = static_cast<uint32_t>(swy::tensor(ops.first, "x").dims[0]);
  const Weight w = weight_in(ops.first), other = weight_in(ops.second);
  const Weight table = weight_of(swy::tensor(ops.embedding, "table"), nullptr);
  if (!boxes_by_engine(device) || rows > kQuad) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "an embedding and rows are projected together by the copy engine, up to %u rows", kQuad);
  }
  if (table.dtype != SWY_F32 && table.dtype != SWY_BF16 && !in_slices(table)) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE,
                     "an embedding is projected in place from f32, bf16, or 4 bits in groups of 64 or a multiple");
  }
  const uint32_t tiles = tiles_per_block(device, w);
  if (!in_boxes(w) || !in_boxes(other) || other.dtype != w.dtype || other.groups != w.groups || other.rows != w.rows ||
      other.width != w.width || table.width != w.width || w.width > kSideWarps * kSlice || tiles > kMostTilesOfTwo ||
      shared_bytes(tiles, scales_bytes(w, kTileRows), rows) > device.features.block_memory / 2) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "weights of %u x %u and %u x %u are not alike, of 4 bits in tiles of 16 x 256, and small enough",
                     w.rows, w.width, other.rows, other.width);
  }
  return SWY_OK;
}

double two_cost(const swy_device& device, const TwoOps& ops) {
  const double bytes = weight_bytes(swy::tensor(ops.first, "w")) + weight_bytes(swy::tensor(ops.second, "w"));
  return 3.0 + 0.7 * static_cast<double>(swy::tensor(ops.first, "x").dims[0] - 1) + device.rates.bytes(bytes, 3.6e6);
}

swy_status record_two(const Recording& r, const TwoInputs& in) {
  const Weight& w = in.weights[0];
  TwoMaps maps{};
  for (uint32_t side = 0; side < kSides; ++side) {
    SWY_CUDA_TRY(map_boxes(in.weights[side], kTileRows, &maps.of[side], r.error));
  }
  const Two b{in,
              r.list.tokens,
              tiles_per_block(r.device(), w),
              w.rows / kTileRows,
              scales_bytes(w, kTileRows),
              1.0f / static_cast<float>(w.width)};
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "x").dims[0]);
  const uint32_t shared = std::max(shared_bytes(b.tiles, b.scale_bytes, rows), alone_memory(r.device()));
  return launch(r, rows == 1 ? linear_two<1> : linear_two<kQuad>, ceil_div(b.all_tiles, b.tiles), kSliceThreads, shared,
                maps, b, r.list.step);
}

}  // namespace gpu
