// SPDX-License-Identifier: Apache-2.0
// Device functions of the mixture by boxes (moe_boxes.cu explains how they work together): a warp has some of the
// columns, a lane eight neighbouring ones of 256.
#pragma once

#include "choice.cuh"
#include "common/async_copies.cuh"
#include "common/slices_halves.cuh"
#include "moe_boxes.h"

namespace gpu {

constexpr uint32_t kMostExperts = kChoiceThreads, kHalf = 32;  // rows of gate, and of up, per block
constexpr uint32_t kMostHidden = kBoxWarps * kSlice;
constexpr uint32_t kDownWarps = 18, kMostBoxes = 2;  // of `down`: one for each slice of nine experts' h, of 512 each

struct MixtureBoxes {
  Mixture m;
  InputNorm norm;
  bool normed;
  float per_width;  // 1 / hidden
  float* inverse;   // [rows]: 1 / rms of the input, for moe_walk.cu; null unless logits come without it
  HalfRows h;       // [rows, m.h_width()]: h times its factor in y; not of moe_walk.cu

  __host__ __device__ uint32_t slots() const { return m.top_k + (m.shared_width != 0 ? 1 : 0); }
  // Slices of h: each slot has whole ones.
  __host__ __device__ uint32_t h_slices() const { return slots() * (m.width / kSlice); }
  // The most slices that one of so many warps has.
  __host__ __device__ uint32_t boxes_per_warp(uint32_t warps) const { return (h_slices() + warps - 1) / warps; }
};
struct UpMaps {
  CUtensorMap gate_up, shared_gate, shared_up;
};
struct DownMaps {
  CUtensorMap down, shared_down;
};

// ---- the norm

// The factors of elements 8 i to 8 i + 7 of the input.
__device__ inline void norm_of(const MixtureBoxes& b, uint32_t i, float (&norm)[8]) {
#pragma unroll
  for (int j = 0; j < 8; ++j) norm[j] = 1.0f - b.norm.bias;
  if (b.normed) plain_eight(b.norm.weight, i, norm);
#pragma unroll
  for (int j = 0; j < 8; ++j) norm[j] += b.norm.bias;
}

// ---- route

constexpr uint32_t kChunks = kMostHidden / kSlice / 4;  // of a warp that routes

// Adds this lane's share of a row's product, and of the squares of x.
__device__ inline void multiply_chunks(const float (&weight)[kChunks][8], const float (&norm)[kChunks][8],
                                       const float (&v)[kChunks][8], uint32_t first, uint32_t chunks, float& sum,
                                       float& square) {
#pragma unroll
  for (uint32_t c = 0; c < kChunks; ++c) {
    if (c * 4 + first >= chunks) continue;
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) {
      square = fmaf(v[c][j], v[c][j], square);
      sum = fmaf(v[c][j] * norm[c][j], weight[c][j], sum);
    }
  }
}

// ---- gate_up

// Where 32 rows of gate and 32 of up are copied to, and the barrier that counts their bytes.
struct HalfBoxes {
  char* boxes;       // of this warp: gate, up
  uint16_t* scales;  // likewise, of the block
  uint32_t half;     // bytes of the scales of gate, or of up
  bool works;        // whether this warp has columns
  Asked (&arrived)[kBoxWarps], &scales_arrived;
};

// Requests rows of gate and of up: each warp for its columns, the first thread the scales. kPaced: rows of up are left
// to ask_for_up.
template <bool kEngine, bool kPaced = false>
__device__ inline void ask_for_halves(const HalfBoxes& to, const CUtensorMap& gate, const CUtensorMap& up,
                                      const Weight& gate_weight, const Weight& up_weight, uint32_t gate_row,
                                      uint32_t up_row) {
  const uint32_t warp = threadIdx.x / 32;
  if constexpr (!kEngine) {
    if (to.works) {
      copy_box_async<kHalf>(to.boxes, gate_weight, gate_row, warp);
      copy_box_async<kHalf>(to.boxes + kHalf * kBoxBytes, up_weight, up_row, warp);
    }
    copy_scales_async(to.scales, gate_weight, gate_row, kHalf, threadIdx.x, kBoxThreads);
    copy_scales_async(to.scales + to.half / 2, up_weight, up_row, kHalf, threadIdx.x, kBoxThreads);
    return;
  }
  if (to.works && threadIdx.x % 32 == 0) {
    to.arrived[warp].expect((kPaced ? 1 : 2) * kHalf * kBoxBytes);
    to.arrived[warp].ask(to.boxes, gate, warp * kBoxBytes, gate_row);
    if (!kPaced) to.arrived[warp].ask(to.boxes + kHalf * kBoxBytes, up, warp * kBoxBytes, up_row);
  }
  if (threadIdx.x == 0) {
    to.scales_arrived.expect(2 * to.half);
    to.scales_arrived.ask_scales(to.scales, gate_weight, gate_row, kHalf);
    to.scales_arrived.ask_scales(to.scales + to.half / 2, up_weight, up_row, kHalf);
  }
}

// Requests a warp's rows of up, when those of gate have arrived. All its lanes call this.
__device__ inline void ask_for_up(const HalfBoxes& to, const CUtensorMap& up, uint32_t up_row) {
  const uint32_t warp = threadIdx.x / 32;
  __syncwarp();  // every lane has seen them arrive
  if (threadIdx.x % 32 != 0) return;
  to.arrived[warp].expect(kHalf * kBoxBytes);
  to.arrived[warp].ask(to.boxes + kHalf * kBoxBytes, up, warp * kBoxBytes, up_row);
}

// Preparation before any request. `map`: that of weights that are not known yet.
__device__ inline void begin_halves(const CUtensorMap& map, bool routed, Asked (&arrived)[kBoxWarps],
                                    Asked& scales_arrived) {
  if (threadIdx.x == 0) {
    for (uint32_t w = 0; w < kBoxWarps; ++w) arrived[w].init();
    scales_arrived.init();
    publish_barriers();
    if (routed) prefetch_map(map);
  }
  __syncthreads();
}

// The row of the chosen expert's gate from which a block has some.
__device__ inline uint32_t chosen_row(const Mixture& m, const Chosen& chosen, uint32_t slot, uint32_t first) {
  return min(chosen.ids[slot], m.experts - 1) * 2 * m.width + first;
}
// Chooses, and requests rows of the expert of a slot, from row `first` of its gate and of its up.
template <bool kEngine, bool kPaced>
__device__ inline void ask_for_chosen(const HalfBoxes& to, const CUtensorMap& map, const Mixture& m, float logit,
                                      bool exists, uint32_t slot, uint32_t first, Chosen& chosen) {
  choose(logit, exists, m.top_k, chosen);
  const uint32_t row = chosen_row(m, chosen, slot, first);
  ask_for_halves<kEngine, kPaced>(to, map, map, m.gate_up, m.gate_up, row, row + m.width);
}

// The slice of x by the norm, and the sum of its squares.
__device__ inline Piece make_normed(float (&v)[8], const float (&norm)[8], float& squares) {
  float sum = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    sum = fmaf(v[j], v[j], sum);
    v[j] *= norm[j];
  }
  squares = warp_sum(sum);
  return make_piece(v);
}

// ---- h's factor in y

// A lane's, where logits come without `inverse`: of a chosen expert, whose logit is `above` the largest, in lanes below
// top_k (at most 8), or of the shared expert from its gate `mix`. Few instructions, since `inverse` is known late.
__device__ inline float factor_of_logits(float above, float mix, bool of_shared, float inverse) {
  const float power = exp2_of(fmaxf((of_shared ? -mix : above) * inverse * 1.44269504f, -INFINITY));
  float sum = of_shared ? 0.0f : power;
#pragma unroll
  for (int d = 1; d < static_cast<int>(kMostChosen); d *= 2) sum += __shfl_xor_sync(kAll, sum, d);
  return (of_shared ? 1.0f : power) * reciprocal(of_shared ? 1.0f + power : sum);
}

// That of a slot of gate_up, the shared expert's if it is not `routed`. All lanes of a warp call this.
__device__ inline float factor_of_slot(const MixtureBoxes& b, const Chosen& chosen, bool routed, uint32_t slot,
                                       float mix, float inverse) {
  const bool raw = b.inverse != nullptr;
  const float above = routed ? chosen.above_best(b.m.top_k) : 0.0f;
  const float factor = factor_of_logits(above, mix, !routed, raw ? inverse : 1.0f);
  if (routed) return __shfl_sync(kAll, factor, slot);
  return raw ? factor : mix;
}

// ---- down

// Where 16 rows for all slices of h are copied to, and the barriers for those of this warp.
struct SlotBoxes {
  char *boxes, *scales;
  uint32_t mine, per_slot, tile_scales;  // slices of this warp, and of a slot; bytes of the scales of a tile
  Asked& arrived;
};

// Requests them: rows from `first` on of the chosen experts, and of the shared one.
template <uint32_t kWarps, bool kEngine>
__device__ inline void ask_for_slots(const SlotBoxes& to, const DownMaps& maps, const Mixture& m, const Chosen& chosen,
                                     uint32_t first) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if constexpr (!kEngine) {
    for (uint32_t i = 0; i < to.mine; ++i) {
      const uint32_t slice = warp + i * kWarps, slot = slice / to.per_slot;
      const bool routed = slot < m.top_k;
      const Weight& w = routed ? m.down : m.shared_down;
      const uint32_t row = (routed ? min(chosen.ids[slot], m.experts - 1) * m.hidden : 0) + first;
      copy_box_async<kTileRows>(to.boxes + slice * kTileBytes, w, row, slice % to.per_slot);
      copy_scales_async(to.scales + slice * to.tile_scales, w, row, kTileRows, lane, 32);
    }
    return;
  }
  if (lane == 0) to.arrived.expect(to.mine * (kTileBytes + to.tile_scales));
  __syncwarp();
  if (lane < to.mine) {
    const uint32_t slice = warp + lane * kWarps, slot = slice / to.per_slot;
    const bool routed = slot < m.top_k;
    const uint32_t row = (routed ? min(chosen.ids[slot], m.experts - 1) * m.hidden : 0) + first;
    to.arrived.ask(to.boxes + slice * kTileBytes, routed ? maps.down : maps.shared_down,
                   slice % to.per_slot * kBoxBytes, row);
    to.arrived.ask_scales(reinterpret_cast<uint16_t*>(to.scales + slice * to.tile_scales),
                          routed ? m.down : m.shared_down, row, kTileRows);
  }
}

// Preparation of one warp before any request.
__device__ inline void begin_slots(const CUtensorMap& map, Asked& arrived) {
  if (threadIdx.x % 32 == 0) {
    arrived.init();
    publish_barriers();
    prefetch_map(map);
  }
  __syncwarp();
}

}  // namespace gpu
