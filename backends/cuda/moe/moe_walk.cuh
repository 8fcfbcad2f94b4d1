// SPDX-License-Identifier: Apache-2.0
// Device functions of moe_walk.cu: a block's requests, and products of tiles whose sums stay in registers.
#pragma once

#include "common/slices_quad.cuh"
#include "common/term_rows.cuh"
#include "common/warp_choice.cuh"
#include "moe_boxes.cuh"

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
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// ---- route

// The input, by its norm, as integers. A warp has two groups of all rows, eight lanes a row.
__device__ inline void convert_rows(const MixtureBoxes& b, const TermBlock<kRouteRows>& block, const swy_step* step,
                                    Stamps& stamps) {
  const Mixture& m = b.m;
  const uint32_t row = block.lane / 8, groups = m.hidden / 64;
  block.keep_factors(b.norm.weight, b.normed, b.norm.bias);
  const uint32_t rows = step_rows(step, m.domain);
  __syncthreads();
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  float v[2][8] = {}, square = 0;
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t group = 2 * block.warp + i;
    if (row < rows && group < groups) load_eight_fresh(m.x + row * m.hidden + group * 64 + block.lane % 8 * 8, v[i]);
  }
  Piece piece[2];
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const float* factors = block.memory.factors + (2 * block.warp + i) * 64 + block.lane % 8 * 8;
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) square = fmaf(v[i][j], v[i][j], square), v[i][j] *= factors[j];
    piece[i] = make_piece(v[i]);
  }
#pragma unroll
  for (uint32_t d = 1; d < 8; d *= 2) square += __shfl_xor_sync(kAll, square, d);
  if (block.lane % 8 == 0) block.memory.squares[row][block.warp] = square;
  __syncthreads();
  const float inverse = b.normed ? inverse_root(block.memory.squares[row], b.per_width, b.norm.eps) : 1.0f;
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t group = 2 * block.warp + i;
    piece[i].scale *= inverse;
    if (row < rows && group < groups) put_piece(b.x, piece[i], row, groups, group);
  }
  stamps.end();
}

// ---- gate_up

constexpr uint32_t kRowsShare = kQuad * kShareStride * 4;  // bytes of a tile's sums of four rows

struct UpShared {
  Asked arrived[kBoxWarps][kUpRing], scales_arrived[kUpSlots];
  alignas(16) float h[kQuad][kPart];
  // The shared expert's: of each warp its shares of two tiles, and what QuadMemory has of its slice.
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
  uint32_t gate_row, up_row;

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

// ---- activations: integers that the router's kernel has written

// The operand of a warp's slice of one row.
struct RowOperand {
  uint4 words;
  float2 of;  // of group lane % 4: a 16th of the scale, and the start of its sums

  __device__ RowOperand(const MixtureBoxes& b, uint32_t row, bool works) {
    const uint32_t lane = threadIdx.x % 32, first = row * (b.m.hidden / 64) + threadIdx.x / 32 * 4;
    words = works ? __ldcg(b.x.words + first * 8 + lane) : make_uint4(0, 0, 0, 0);
    of = works ? __ldcg(b.x.scales + first + lane % 4) : make_float2(0, 0);
  }
};
// That of all rows: lane 8 i + j has words of row i.
__device__ inline QuadOperand load_rows_operand(UpShared& shared, const MixtureBoxes& b, uint32_t rows) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, groups = b.m.hidden / 64, first = warp * 4;
  const uint4* from = b.x.words + (lane / 8 * groups + first) * 8 + lane % 8;
  QuadOperand x;
#pragma unroll
  for (uint32_t group = 0; group < 4; ++group) {
    const uint4 w = lane / 8 < rows ? __ldcg(from + group * 8) : make_uint4(0, 0, 0, 0);
    x.b[group][0][0] = w.x, x.b[group][0][1] = w.y, x.b[group][1][0] = w.z, x.b[group][1][1] = w.w;
  }
  if (lane < 16) {
    const float2 of = lane / 4 < rows ? __ldcg(b.x.scales + lane / 4 * groups + first + lane % 4) : make_float2(0, 0);
    // From -128 times the sum of the integers to 16 times.
    shared.of_group[warp][lane / 4][lane % 4] = make_float2(of.x, __int_as_float(-__float_as_int(of.y) / 8));
  }
  __syncwarp();
  x.of_group = shared_at(shared.of_group[warp][lane % 4]);
  pin(x.of_group);
  return x;
}

// ---- products

// A tile times a slice of one row: v[j] is row g + 8 j, of group t of lane 4 g + t. `start`: -128 times the sum of the
// group's integers. `scales`: of the tile, as places.at.
__device__ inline void multiply_walked(uint32_t tile, uint32_t in_box, const ScalePlaces& places, uint32_t scales,
                                       const uint32_t (&b)[4][2][2], float scale, int start, float* v) {
  constexpr uint32_t kLow = 0x0f0f0f0fu;
  const int first = places.offsets != 0 ? 0 : start;
  int c[4] = {0, first, 0, first}, d[4] = {};
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
    const int dot = (c[2 * j] + d[2 * j]) * 256 + (c[2 * j + 1] + d[2 * j + 1]);
    float one = static_cast<float>(dot) * shared_half(at);
    if (places.offsets != 0) one += shared_half(at + places.offsets) * (-0.125f * static_cast<float>(start));
    v[j] = one * scale;
  }
}

// ---- down

struct DownShared {
  Asked arrived[kWalkWarps][kDownRing];
  int32_t ids[kQuad][kMostChosen];
  float factors[kQuad][kMostChosen + 1];
  float parts[kWalkWarps][kTileRows];
};

// The slices of h that a warp multiplies: every each-th of its row's.
struct DownItems {
  uint32_t row, first, each, count, per_slot;

  __device__ DownItems(const Walk& p, uint32_t rows) : each(p.each), per_slot(p.b.m.width / kSlice) {
    const uint32_t warp = threadIdx.x / 32, all = p.b.h_slices();
    row = warp / each, first = warp % each;
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
