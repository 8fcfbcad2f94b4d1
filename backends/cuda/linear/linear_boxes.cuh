// SPDX-License-Identifier: Apache-2.0
// A block of linear_boxes.cu: what it requests before its wait, and the products after it.
#pragma once

#include <type_traits>

#include "common/async_copies.cuh"
#include "common/projection.cuh"
#include "common/slices_quad.cuh"
#include "gated_delta/gated_delta_step.h"
#include "linear_boxes.h"

namespace gpu {

constexpr uint32_t kMostTiles = 8, kPlainRows = 16;  // of a block
constexpr uint32_t kPlainWarps = kSliceWarps / 2;    // with different columns
constexpr uint32_t kPlainMemory = 109 * 1024;        // of a block of them, with several rows of activations
static_assert(kPlainRows / 2 * 16 * kSliceThreads + 1024 <= kPlainMemory);
constexpr uint32_t kMostWeights = 4;  // quantized ones

__host__ __device__ inline uint32_t plain_blocks(uint32_t rows) { return (rows + kPlainRows - 1) / kPlainRows; }

struct Boxes {
  Projection p;  // first_task counts tiles, of quantized weights alone
  HeadNorm heads;
  HeadParts parts;       // instead of p.x
  uint32_t tiles;        // of a block
  uint32_t tile_blocks;  // the blocks before those of plain rows
  uint32_t scale_bytes;  // of a tile
  uint32_t squares;      // of a row's heads
  float per_dim;         // 1 over the elements that a norm is over
  Weight like;           // one of the quantized weights; all have the same encoding
  bool quantized[SWY_LINEAR_MAX_WEIGHTS];
  uint32_t map[SWY_LINEAR_MAX_WEIGHTS];

  __host__ __device__ uint32_t slices() const { return p.width / kSlice; }
};
__host__ __device__ inline uint32_t teams_of(uint32_t slices) { return slices <= kSliceWarps / 2 ? 2 : 1; }
struct Maps {
  CUtensorMap of[kMostWeights];
};

// The norm's factors of this lane's eight elements of a slice; they need no input of the step.
__device__ inline void factors_of(const Boxes& b, uint32_t slice, float (&factors)[8]) {
#pragma unroll
  for (int j = 0; j < 8; ++j) factors[j] = 1.0f - b.p.bias;
  if (b.p.normed) plain_eight(b.p.norm, slice * 32 + threadIdx.x % 32, factors);
#pragma unroll
  for (int j = 0; j < 8; ++j) factors[j] += b.p.bias;
}

// The eight elements in the form that products need; adds the squares of the whole slice to `squares`.
__device__ inline void finish_eight(const Boxes& b, const float (&factors)[8], float (&v)[8], float& squares) {
  float sum = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) sum = fmaf(v[j], v[j], sum);
  if (b.p.normed) squares += warp_sum(sum);
#pragma unroll
  for (int j = 0; j < 8; ++j) v[j] *= factors[j];
}

// The work of a warp: one slice of some of the block's tiles. With few slices, two teams of warps have half of the
// tiles each.
template <uint32_t kTeams>
struct Share {
  static constexpr uint32_t kColumns = kSliceWarps / kTeams;
  uint32_t slice, begin, count;

  __device__ Share(uint32_t slices, uint32_t tiles) {
    const uint32_t warp = threadIdx.x / 32, half = (tiles + kTeams - 1) / kTeams;
    slice = warp % kColumns;
    begin = min(warp / kColumns * half, tiles);
    count = min(half, tiles - begin);
    exists = slice < slices;
  }
  bool exists;  // the slice
};

// A warp's requests: `count` tiles from `tile` on, of its slice, to `boxes`.
struct SliceBoxes {
  char* boxes;
  uint32_t slice, tile, count;
  Asked& arrived;

  __device__ void ask(const Maps& maps, const Boxes& b, uint32_t i) const {
    const uint32_t w = weight_of_task(b.p, tile + i);
    arrived.expect(kTileBytes);
    arrived.ask(boxes + i * kTileBytes, maps.of[b.map[w]], slice * kBoxBytes,
                (tile + i - b.p.first_task[w]) * kTileRows);
  }
};

// Each warp requests its first tile, the first warp also the scales of all.
__device__ inline void begin_tiles(const Maps& maps, const Boxes& b, const SliceBoxes& own, uint32_t first,
                                   uint32_t tiles, char* scales, Asked& scales_arrived) {
  const Projection& p = b.p;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (lane == 0) {
    own.arrived.init();
    if (warp == 0) scales_arrived.init();
    publish_barriers();
    if (own.count != 0) own.ask(maps, b, 0);
    if (warp == 0) scales_arrived.expect(tiles * b.scale_bytes);
  }
  __syncwarp();
  if (warp == 0 && lane < tiles) {
    const uint32_t w = weight_of_task(p, first + lane);
    scales_arrived.ask_scales(reinterpret_cast<uint16_t*>(scales + lane * b.scale_bytes), p.weights[w],
                              uint64_t{first + lane - p.first_task[w]} * kTileRows, kTileRows);
  }
  __syncthreads();  // all barriers are initialised
}
// Requests each further tile when the previous one has arrived: with all of them in transfer, the previous kernel's
// reads of activations would be delayed.
__device__ inline void ask_for_others(const Maps& maps, const Boxes& b, const SliceBoxes& own) {
#pragma unroll 1
  for (uint32_t i = 1; i < own.count; ++i) {
    barrier_wait(shared_at(&own.arrived), (i - 1) & 1);
    __syncwarp();
    if (threadIdx.x % 32 == 0) own.ask(maps, b, i);
  }
}

// The same by cp.async: each warp's tiles, and the scales by all threads.
__device__ inline void begin_tiles_async(const Boxes& b, const SliceBoxes& own, uint32_t first, uint32_t tiles,
                                         char* scales) {
  const Projection& p = b.p;
  for (uint32_t i = 0; i < own.count; ++i) {
    const uint32_t w = weight_of_task(p, own.tile + i);
    copy_box_async<kTileRows>(own.boxes + i * kTileBytes, p.weights[w], (own.tile + i - p.first_task[w]) * kTileRows,
                              own.slice, p.weights[w].rows - 1);
  }
  for (uint32_t i = 0; i < tiles; ++i) {
    const uint32_t w = weight_of_task(p, first + i);
    const uint32_t row = (first + i - p.first_task[w]) * kTileRows;
    copy_scales_async(scales + i * b.scale_bytes, p.weights[w], row, kTileRows, threadIdx.x, kSliceThreads,
                      p.weights[w].rows - row);
  }
}

// Where a thread's result belongs in the outputs, and the value of the residual that is added to it. The threads 4 r to
// 4 r + 3 have row r of the block's weights, 4 / kRows of them each row of the activations; the first of those writes.
// Null for the others.
struct ResultPlace {
  float* to = nullptr;
  const float* added = nullptr;
};
// kWhole: all weights have whole tiles.
template <uint32_t kRows, bool kWhole>
__device__ inline ResultPlace place_of_result(const Boxes& b, uint32_t first, uint32_t tiles, uint32_t rows) {
  const uint32_t row = threadIdx.x / 4, x_row = threadIdx.x % 4 / (4 / kRows);
  if (threadIdx.x % (4 / kRows) != 0 || x_row >= rows || row >= tiles * kTileRows) return {};
  const Projection& p = b.p;
  const uint32_t w = weight_of_task(p, first + row / kTileRows);
  const uint32_t at = (first - p.first_task[w]) * kTileRows + row;  // the block may begin before the weight
  if (!kWhole && at >= p.weights[w].rows) return {};
  ResultPlace place;
  place.to = p.y[w] + (x_row * p.weights[w].rows + at);
  if (p.residual != nullptr) place.added = p.residual + (x_row * p.weights[w].rows + at);
  return place;
}

// Where a lane finds its eight activations of a slice, from row `row` on; kParts: of the only row, in parts of heads.
template <bool kParts>
__device__ inline auto place_of_input(const Boxes& b, uint32_t row, uint32_t slice) {
  if constexpr (kParts) {
    return HeadPartsPlace(b.parts, slice);
  } else {
    const float* at = b.p.x + row * b.p.width + slice * kSlice + threadIdx.x % 32 * 8;
    pin(at);
    return at;
  }
}

// A warp's activations: a slice of kRows rows, of which the step may have fewer unless kWhole. load() requests them;
// make_pieces() makes integers of them, and adds each row's sum of squares to `squares`.
template <uint32_t kRows, bool kWhole>
struct SliceRows {
  float v[kRows][8];

  __device__ void load(const HeadPartsPlace& from, const Boxes&, uint32_t) { from.load(v[0]); }
  __device__ void load(const float* from, const Boxes& b, uint32_t rows) {
#pragma unroll
    for (uint32_t m = 0; m < kRows; ++m) {
      if (kWhole || m < rows) {
        load_eight_fresh(from + m * b.p.width, v[m]);
      } else {
#pragma unroll
        for (uint32_t j = 0; j < 8; ++j) v[m][j] = 0;
      }
    }
  }
  __device__ void make_pieces(const Boxes& b, const float (&factors)[8], float (&squares)[kRows],
                              Piece (&piece)[kRows]) {
#pragma unroll
    for (uint32_t m = 0; m < kRows; ++m) {
      finish_eight(b, factors, v[m], squares[m]);
      piece[m] = make_piece(v[m]);
    }
  }
};

// Two teams of warps have the same slices: with several rows of activations, each makes the integers of half of them.
template <uint32_t kTeams, uint32_t kRows>
constexpr bool kShareRows = kRows > 1 && kTeams == 2;

// kEngine: whether the copy engine brings the weights. kParts: whether the input is in parts of heads.
template <uint32_t kTeams, uint32_t kRows, bool kEngine, bool kParts = false>
__device__ void multiply_block(const Maps& maps, const Boxes& b, const swy_step* step, char* dynamic) {
  constexpr bool kShared = kShareRows<kTeams, kRows>;
  constexpr uint32_t kOwnRows = kShared ? kRows / 2 : kRows;
  __shared__ Asked arrived[kSliceWarps], scales_arrived;
  __shared__ __align__(16) float squares_of[kRows][kSliceWarps];
  using Places = std::conditional_t<kRows == 1, ScalePlaces, PairPlaces>;
  const Projection& p = b.p;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t first = blockIdx.x * b.tiles, tiles = min(b.tiles, p.first_task[p.count] - first);
  const Share<kTeams> mine(b.slices(), tiles);
  Stamps stamps(p.normed ? kStampNormed : kStampPlain);
  char* boxes = first_box(dynamic);  // [slice][tile]
  char* scales = boxes + Share<kTeams>::kColumns * b.tiles * kTileBytes;
  const SliceBoxes asked{boxes + (mine.slice * b.tiles + mine.begin) * kTileBytes, mine.slice, first + mine.begin,
                         mine.exists ? mine.count : 0, arrived[warp]};
  release_next();
  if constexpr (kEngine) {
    begin_tiles(maps, b, asked, first, tiles, scales, scales_arrived);
  } else {
    begin_tiles_async(b, asked, first, tiles, scales);
  }
  stamps.note(kAsked);
  using Exchange = std::conditional_t<kRows == kQuad, QuadMemory, PairMemory>;
  auto* memory = reinterpret_cast<Exchange*>(scales + b.tiles * b.scale_bytes) + mine.slice;  // if kShared or kQuad
  const uint32_t rows = step_rows(step, p.domain);  // 0: writes nothing, but requested data must arrive
  const uint32_t x_row = kShared ? warp / Share<kTeams>::kColumns * kOwnRows : 0;  // the first of this warp
  float factors[8];
  if (mine.exists) factors_of(b, mine.slice, factors);
  ResultPlace place = place_of_result<kRows, kEngine>(b, first, tiles, rows);
  const auto from = place_of_input<kParts>(b, x_row, mine.slice);
  uint32_t own = shared_at(boxes) + (mine.slice * b.tiles + mine.begin) * kTileBytes, in_box = lane_of_box();
  uint32_t share = share_of_lane(), joined = shares_of_row(shared_at(boxes)), apart = b.tiles * kTileBytes;
  uint32_t count = mine.exists ? mine.count : 0, tiles_at = shared_at(&arrived[warp]),
           scales_at = shared_at(&scales_arrived);
  const Places places(scales + mine.begin * b.scale_bytes, b.like, mine.slice, kTileRows, b.scale_bytes / 2);
  if (!mine.exists) clear_shares(own, share, mine.count);
  pin(own), pin(in_box), pin(share), pin(joined), pin(apart), pin(count), pin(tiles_at), pin(scales_at);
  pin(place.to), pin(place.added);
  if constexpr (kEngine) ask_for_others(maps, b, asked);
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  float squares[kOwnRows] = {};
  const float residual = place.added != nullptr ? __ldcg(place.added) : 0.0f;
  SliceRows<kOwnRows, kRows == 1> x_rows;
  const bool works = kShared ? mine.exists : count != 0;
  Piece piece[kOwnRows];
  if (works) x_rows.load(from, b, rows > x_row ? rows - x_row : 0);
  if constexpr (!kEngine) {
    if (works) x_rows.make_pieces(b, factors, squares, piece);
    arrived_async();
    __syncthreads();
  }
  if (works) {
    if constexpr (kEngine) barrier_wait(scales_at, 0);
    LaneScales<1> of;
    if constexpr (kRows == 1) of.load(places, 0);
    if constexpr (kEngine) {
      if (!kShared || count != 0) barrier_wait(tiles_at, (count - 1) & 1);
    }
    stamps.note(kArrived);
    if constexpr (kEngine) x_rows.make_pieces(b, factors, squares, piece);
    const auto x = [&] {
      if constexpr (kRows == kQuad) {
        const auto own_piece = [&](uint32_t round, uint32_t m) { return piece[kShared ? m : 2 * round + m]; };
        const auto meet = [&] {
          if constexpr (kShared) {
            asm volatile("bar.sync %0, 64;" ::"r"(1 + mine.slice) : "memory");
          } else {
            __syncwarp();
          }
        };
        return make_quad_operand(
            *memory, [&](uint32_t round) { return !kShared || x_row == 2 * round; }, own_piece, meet);
      } else if constexpr (kShared) {
        return make_pair_operand(piece[0], x_row, *memory, 1 + mine.slice);
      } else if constexpr (kRows == 1) {
        return make_operand(piece[0], 1.0f);
      } else {
        return make_pair_operand(piece);
      }
    }();
    stamps.note(kRead);
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i) {
      if constexpr (kRows == 1) {
        if (i != 0) of.load(places, i);
        multiply_slice<1>(own + i * kTileBytes, in_box, share, of, places, i, x, 1);
      } else if constexpr (kRows == kQuad) {
        multiply_any_quad(own + i * kTileBytes, in_box, share, places, i, x);
      } else {
        multiply_pair(own + i * kTileBytes, in_box, share, places, i, x);
      }
    }
  }
  stamps.note(kMultiplied);
#pragma unroll
  for (uint32_t m = 0; m < kRows; ++m) {
    const bool mine_too = kShared ? x_row == m / kOwnRows * kOwnRows : warp < Share<kTeams>::kColumns;
    if (lane == 0) squares_of[m][warp] = mine_too ? squares[m % kOwnRows] : 0.0f;
  }
  __syncthreads();
  if (threadIdx.x / 4 >= tiles * kTileRows) return;  // whole warps
  const float sum = join_shares<Share<kTeams>::kColumns, 4 / kRows>(joined, apart);
  if (place.to != nullptr) {
    const auto& of_row = squares_of[threadIdx.x % 4 / (4 / kRows)];
    *place.to = fmaf(sum, p.normed ? inverse_root(of_row, b.per_dim, p.eps) : 1.0f, residual);
  }
}

}  // namespace gpu
