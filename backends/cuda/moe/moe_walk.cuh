// SPDX-License-Identifier: Apache-2.0
// Device functions of moe_walk.cu: a block's requests, and products of tiles whose sums stay in registers.
#pragma once

#include "common/slices_quad.cuh"
#include "common/term_rows.cuh"
#include "common/warp_choice.cuh"
#include "moe_boxes.cuh"
#include "switchyard/extensions_ahead.h"

namespace gpu {

constexpr uint32_t kPart = 64, kSteps = kPart / kTileRows;           // columns of h of a block of gate_up
constexpr uint32_t kUpTiles = 2 * kSteps;                            // of a warp there: of gate and of up in turn
constexpr uint32_t kRouteRows = 8;                                   // experts of a block of route
constexpr uint32_t kUpRing = 4, kDownRing = 2;                       // tiles of a warp's ring
constexpr uint32_t kUpSlots = 2;                                     // steps whose scales a block of gate_up has
constexpr uint32_t kWalkWarps = 12, kWalkThreads = 32 * kWalkWarps;  // of a block of `down`

struct Walk {
  MixtureBoxes b;
  QuadRows h;              // place row * slots + slot
  uint32_t rows, each;     // of the bucket; warps of a row in `down`
  uint32_t shared_blocks;  // of gate_up
  uint32_t release;        // with this tile of a warp, `down` lets the next kernel begin
  const int32_t* tokens;   // of the token buffer: what earlier lists drew
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// ---- rows that may not stand

constexpr uint32_t kAllRows = UINT32_MAX;

// The one row of the step whose results are read (extensions_ahead.h); kAllRows: all are. All that this loads was
// written by lists that were submitted before this one.
__device__ inline uint32_t only_row(const Walk& p, const swy_step* step) {
  if (p.b.m.domain != SWY_ROWS_STEP) return kAllRows;
  if (step->seqs != 1 || (*step_array<uint32_t>(step, step->seq_active_at) & SWY_SEQ_MAY_STAND) == 0) return kAllRows;
  const uint32_t rows = step->rows;
  const int32_t* token = step_array<int32_t>(step, step->row_token_at);
  const auto id = [&](uint32_t i) { return token[i] < 0 ? __ldcg(p.tokens - 1 - token[i]) : token[i]; };
  uint32_t row = 0;
#pragma unroll
  for (uint32_t i = 0; i + 1 < kQuad; ++i) {
    if (i + 1 < rows) row += row == i && id(i) == id(rows + i) ? 1 : 0;
  }
  return row;
}

// ---- gate_up

constexpr uint32_t kRowsShare = kQuad * kShareStride * 4;  // bytes of a tile's sums of four rows

struct UpShared {
  Asked arrived[kBoxWarps][kUpRing], scales_arrived[kUpSlots];
  alignas(16) float h[kQuad][kPart];
  alignas(16) float squares[kQuad][kBoxWarps];  // of the input
  // The shared expert's: of each warp its shares of two tiles, and before that a row's integers; and what QuadMemory
  // has of its slice.
  alignas(16) float of_rows[kBoxWarps][2 * kRowsShare / 4];
  float2 of_group[kBoxWarps][kQuad][4];
  alignas(16) float shares[2][kBoxWarps][2 * kTileRows];  // of two steps in turn: gate, up
  Chosen chosen;
};

// A block's part: kPart columns of h of one expert and one row, or of the shared expert and all rows.
struct UpTask {
  bool routed;
  uint32_t row, slot, first;

  __device__ explicit UpTask(const Walk& p) {
    const uint32_t parts = p.b.m.width / kPart;
    routed = blockIdx.x >= p.shared_blocks;
    const uint32_t i = routed ? blockIdx.x - p.shared_blocks : blockIdx.x, pair = i / parts;
    first = i % parts * kPart;
    row = routed ? pair / p.b.m.top_k : 0;
    slot = routed ? pair % p.b.m.top_k : p.b.m.top_k;
  }
};

// Requests of a block, one step at a time: each warp for its columns, one thread the scales.
struct UpRequests {
  const UpMaps& maps;
  const Mixture& m;
  UpShared& shared;
  char *boxes, *scales;  // of this warp; of the block
  uint32_t tile_scales;
  bool routed;
  uint32_t gate_row = 0, up_row = 0;

  // `expert`: the chosen one, if routed; `first`: the row of its gate, and of its up.
  __device__ void choose_rows(uint32_t expert, uint32_t first) {
    gate_row = (routed ? expert * 2 * m.width : 0) + first;
    up_row = gate_row + (routed ? m.width : 0);
  }
  // One lane of a warp calls this.
  __device__ void ask_tile(uint32_t i) const {
    const uint32_t warp = threadIdx.x / 32, stage = i % kUpRing;
    const bool of_gate = i % 2 == 0;
    Asked& arrived = shared.arrived[warp][stage];
    arrived.expect(kTileBytes);
    arrived.ask(boxes + stage * kTileBytes,
                routed    ? maps.gate_up
                : of_gate ? maps.shared_gate
                          : maps.shared_up,
                warp * kBoxBytes, (of_gate ? gate_row : up_row) + i / 2 * kTileRows);
  }
  // One thread of the block calls this.
  __device__ void ask_scales(uint32_t step) const {
    const uint32_t slot = step % kUpSlots;
    Asked& arrived = shared.scales_arrived[slot];
    char* to = scales + slot * 2 * tile_scales;
    arrived.expect(2 * tile_scales);
    arrived.ask_scales(reinterpret_cast<uint16_t*>(to), routed ? m.gate_up : m.shared_gate, gate_row + step * kTileRows,
                       kTileRows);
    arrived.ask_scales(reinterpret_cast<uint16_t*>(to + tile_scales), routed ? m.gate_up : m.shared_up,
                       up_row + step * kTileRows, kTileRows);
  }
  __device__ void begin(bool works) const {
    for (uint32_t i = 0; works && threadIdx.x % 32 == 0 && i < kUpRing; ++i) ask_tile(i);
    for (uint32_t i = 0; threadIdx.x == 0 && i < kUpSlots; ++i) ask_scales(i);
  }
};

// Prepares the barriers.
__device__ inline void begin_walk(UpShared& shared, const CUtensorMap& map) {
  if (threadIdx.x == 0) {
    for (uint32_t w = 0; w < kBoxWarps; ++w) {
      for (uint32_t i = 0; i < kUpRing; ++i) shared.arrived[w][i].init();
    }
    for (uint32_t i = 0; i < kUpSlots; ++i) shared.scales_arrived[i].init();
    publish_barriers();
    prefetch_map(map);
  }
  __syncthreads();
}

// ---- activations

// The operand of a warp's slice of one row.
struct RowOperand {
  uint4 words;
  float scale;  // of group lane % 4: a 16th of the scale
  int start;    // and of its sums: -128 times the sum of the integers

  __device__ explicit RowOperand(const Piece& piece) : words(piece.words) {
    const uint32_t from = 8 * (threadIdx.x % 4);
    scale = __shfl_sync(kAll, piece.scale, from) * (1.0f / 16);
    start = -128 * static_cast<int>(__shfl_sync(kAll, piece.sum, from));
  }
};
// That of all rows, one row at a time: lane 8 i + j has words of row i. `from`: this lane's elements of the first.
__device__ inline QuadOperand make_rows_operand(UpShared& shared, const float* from, uint32_t hidden, uint32_t rows,
                                                const float (&norm)[8]) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  auto* words = reinterpret_cast<uint4*>(shared.of_rows[warp]);
  static_assert(sizeof shared.of_rows[0] >= 32 * sizeof(uint4));
  float v[kQuad][8] = {};
#pragma unroll
  for (uint32_t row = 0; row < kQuad; ++row) {
    if (row < rows) load_eight_fresh(from + row * hidden, v[row]);
  }
  QuadOperand x;
#pragma unroll
  for (uint32_t row = 0; row < kQuad; ++row) {
    float squares;
    const Piece piece = make_normed(v[row], norm, squares);
    words[lane] = piece.words;
    if (lane == 0) shared.squares[row][warp] = squares;
    if (lane % 8 == 0) {
      const int sum = 16 * static_cast<int>(piece.sum);
      shared.of_group[warp][row][lane / 8] = make_float2(piece.scale * (1.0f / 16), __int_as_float(sum));
    }
    __syncwarp();
    if (lane / 8 == row) {
#pragma unroll
      for (uint32_t group = 0; group < 4; ++group) {
        const uint4 w = words[8 * group + lane % 8];
        x.b[group][0][0] = w.x, x.b[group][0][1] = w.y, x.b[group][1][0] = w.z, x.b[group][1][1] = w.w;
      }
    }
    __syncwarp();
  }
  x.of_group = shared_at(shared.of_group[warp][lane % 4]);
  pin(x.of_group);
  return x;
}

// ---- products

// A tile times a slice of one row: v[j] is row g + 8 j, of group t of lane 4 g + t. `start`: -128 times the sum of the
// group's integers. `scales`: of the tile, as places.at; they have no offsets (fits_walk).
__device__ inline void multiply_walked(uint32_t tile, uint32_t in_box, const ScalePlaces& places, uint32_t scales,
                                       const uint32_t (&b)[4][2][2], float scale, int start, float* v) {
  constexpr uint32_t kLow = 0x0f0f0f0fu;
  int c[4] = {}, d[4] = {};
#pragma unroll
  for (uint32_t group = 0; group < 4; ++group) {
    uint32_t a[4];
    read_rows(tile + (in_box ^ (32 * group)), a);
    multiply_bytes(c, a[0], a[1], a[2], a[3], b[group][0]);
    multiply_bytes(d, a[0] & kLow, a[1] & kLow, a[2] & kLow, a[3] & kLow, b[group][1]);
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const uint32_t at = scales + j * places.eight;
    const int dot = (c[2 * j] + d[2 * j]) * 256 + (c[2 * j + 1] + d[2 * j + 1]) + start;
    v[j] = static_cast<float>(dot) * (shared_half(at) * scale);
  }
}

// ---- down

struct DownShared {
  Asked arrived[kWalkWarps][kDownRing];
  int32_t ids[kQuad][kMostChosen];
  // How far the chosen experts' logits are above the largest, and behind them the shared expert's gate.
  float above[kQuad][kMostChosen + 1];
  float parts[kWalkWarps][kTileRows];
};

// The slices of h that a warp multiplies: every each-th of its row's.
struct DownItems {
  uint32_t row, first, each, count, per_slot;

  // `only`: all warps have this row.
  __device__ DownItems(const Walk& p, uint32_t rows, uint32_t only)
      : each(only == kAllRows ? p.each : kWalkWarps), per_slot(p.b.m.width / kSlice) {
    const uint32_t warp = threadIdx.x / 32, all = p.b.h_slices();
    row = only == kAllRows ? warp / each : only, first = warp % each;
    count = row < rows && first < all ? (all - first + each - 1) / each : 0;
  }
  __device__ uint32_t slice(uint32_t i) const { return first + i * each; }
};

// The second operand of a slice, from the words that this lane has of it.
__device__ inline void operand_of(const uint4& w, uint32_t (&b)[4][2][2]) {
  const uint32_t mine = threadIdx.x % 32 / 8;
#pragma unroll
  for (uint32_t group = 0; group < 4; ++group) {
    b[group][0][0] = mine == group ? w.x : 0, b[group][0][1] = mine == group ? w.y : 0;
    b[group][1][0] = mine == group ? w.z : 0, b[group][1][1] = mine == group ? w.w : 0;
  }
}

#endif

}  // namespace gpu
