// SPDX-License-Identifier: Apache-2.0
// What a block of gate_up and one of down do in the mixture by boxes (moe_boxes.cu explains how they work together).
#pragma once

#include "moe_boxes.cuh"

namespace gpu {

// blockIdx.x: (row of the activations * top_k + slot) * (width / 32) + which 32 rows of gate and up; then the shared
// expert, whose blocks have all rows of the activations. Without the copy engine, blockIdx.y: kRows rows of the step.
// kEngine: whether the copy engine brings the weights.
template <uint32_t kRows, bool kEngine>
__device__ inline void gate_up_block(const UpMaps& maps, const MixtureBoxes& b, const swy_step* step) {
  extern __shared__ __align__(kBoxAlignment) char dynamic[];
  __shared__ Asked arrived[kBoxWarps], scales_arrived;
  __shared__ __align__(16) float squares_of[kRows][kBoxWarps];
  __shared__ Chosen chosen;
  __shared__ __align__(16) float h[kRows][kHalf];
  Stamps stamps(kStampGateUp);
  const Mixture& m = b.m;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, slices = m.hidden / kSlice;
  const uint32_t group = blockIdx.x / (m.width / kHalf), first = blockIdx.x % (m.width / kHalf) * kHalf;
  const bool routed = group < kRows * m.top_k, works = warp<slices, all_rows = kRows> 1 && !routed;
  const uint32_t x_row = routed && kRows > 1 ? group / m.top_k : 0, slot = routed ? group - x_row * m.top_k : m.top_k;
  // Rows of up arrive while those of gate are multiplied.
  constexpr bool kPaced = kEngine && kRows > 1;
  constexpr uint32_t kTiles = 2 * kHalf / kTileRows, kApart = kTiles * kTileBytes;  // of a slice: gate, then up
  char* boxes = dynamic + warp * kApart;
  auto* scales = reinterpret_cast<uint16_t*>(dynamic + kBoxWarps * kApart);
  const uint32_t half_scales = scales_bytes(m.gate_up, kHalf);
  const HalfBoxes to{boxes, scales, half_scales, works, arrived, scales_arrived};
  if constexpr (kEngine) begin_halves(maps.gate_up, routed, arrived, scales_arrived);
  if (!routed) {
    ask_for_halves<kEngine>(to, maps.shared_gate, maps.shared_up, m.shared_gate, m.shared_up, first, first);
  }
  float norm[8], v[kRows][8] = {}, squares[kRows] = {};
  if (works) norm_of(b, warp * 32 + lane, norm);
  const uint32_t first_row = kEngine ? 0 : blockIdx.y * kRows;  // of the activations
  const uint32_t all = step_rows(step, m.domain), rows = all > first_row ? all - first_row : 0;
  if (!kEngine && routed && x_row >= rows) {
    depend();
    return;
  }
  const bool exists = threadIdx.x < m.experts;
  // Lanes 8 r + 4 k + t join share t of row r of four, of gate or up (k). With all rows of the activations, shares 2 i
  // and 2 i + 1 are of row i.
  const uint32_t row = threadIdx.x / 8, which = threadIdx.x / 4 % 2, joins = all_rows ? threadIdx.x % 4 / 2 : 0;
  uint32_t own = shared_at(boxes), in_box = lane_of_box(), share = share_of_lane();
  uint32_t joined = shared_at(dynamic) + (which * 2 + row / kTileRows) * kTileBytes +
                    (threadIdx.x % 4 * kShareStride + row % kTileRows) * 4;
  const ScalePlaces gate(scales, m.gate_up, warp, kHalf, kTileRows * m.gate_up.groups);
  uint32_t to_up = half_scales, boxes_at = shared_at(&arrived[warp]), scales_at = shared_at(&scales_arrived);
  const float* from = m.x + (first_row + x_row) * m.hidden + warp * kSlice + lane * 8;
  const float* logit_at = m.logits + (first_row + x_row) * m.experts + threadIdx.x;
  if (!works) clear_shares(own, share, kTiles);
  pin(own), pin(in_box), pin(share), pin(joined), pin(to_up), pin(boxes_at), pin(scales_at);
  pin(from), pin(logit_at);
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  release_next();  // not earlier: `down` reads the logits without waiting for this kernel
  const float logit = exists ? __ldcg(logit_at) : 0.0f;
  const float mix = !routed && warp < rows ? __ldcg(m.shared_p + first_row + warp) : 0.0f;  // of the row it writes
  if (works) load_eight_fresh(from, v[0]);
  if (routed) {
    ask_for_chosen<kEngine, kPaced>(to, maps.gate_up, m, logit, exists, slot, first, chosen);
  }
  stamps.note(kAsked);
  const auto await = [&] {
    if constexpr (kEngine) {
      barrier_wait(scales_at, 0);
      barrier_wait(boxes_at, 0);
    }
  };
  Operand x;
  if constexpr (!kEngine) {
    if (works && !all_rows) x = make_operand(make_normed(v[0], norm, squares[0]), 1.0f);
    arrived_async();
    __syncthreads();
  }
  if (works && all_rows) {
    if constexpr (kRows > 1) {
      if (rows > 1) load_eight_fresh(from + m.hidden, v[1]);
      Piece piece[kRows];
#pragma unroll
      for (uint32_t i = 0; i < kRows; ++i) piece[i] = make_normed(v[i], norm, squares[i]);
      const PairOperand pair = make_pair_operand(piece);
      PairPlaces places(scales, m.gate_up, warp, kHalf, kTileRows * m.gate_up.groups);
      await();
#pragma unroll 1
      for (uint32_t tile = 0; tile < kTiles; ++tile) {
        if (tile == kTiles / 2) places.at += to_up;
        multiply_pair(own + tile * kTileBytes, in_box, share, places, tile % (kTiles / 2), pair);
      }
    }
  } else if (works) {
    if constexpr (kEngine) x = make_operand(make_normed(v[0], norm, squares[0]), 1.0f);
    stamps.note(kRead);
    await();
    stamps.note(kArrived);
    ScalePlaces places = gate;
#pragma unroll 1
    for (uint32_t tile = 0; tile < kTiles; tile += 2, places.at += to_up) {
      if constexpr (kPaced) {
        if (tile == 0) {
          ask_for_up(to, maps.gate_up, chosen_row(m, chosen, slot, first) + m.width);
        } else {
          barrier_wait(boxes_at, 1);
        }
      }
      LaneScales<2> of;
      of.load(places, 0);
      multiply_slice<2>(own + tile * kTileBytes, in_box, share, of, places, 0, x, 2);
    }
  }
  stamps.note(kMultiplied);
#pragma unroll
  for (uint32_t i = 0; i < kRows; ++i) {
    if (lane == 0) squares_of[i][warp] = squares[i];
  }
  __syncthreads();
  const float sum = all_rows ? join_shares<kBoxWarps, 2>(joined, kApart) : join_shares<kBoxWarps>(joined, kApart);
  const float up = __shfl_xor_sync(kAll, sum, 4);
  const float inverse = b.normed ? inverse_root(squares_of[joins], b.per_width, b.norm.eps) : 1.0f;
  if (threadIdx.x % 8 == 2 * joins) h[joins][row] = quick_silu(sum * inverse) * (up * inverse);
  __syncthreads();
  const uint32_t of_warp = x_row + warp;  // the row that it writes
  if (warp >= (all_rows ? kRows : 1) || of_warp >= rows) return;
  load_eight(h[warp] + lane % 4 * 8, v[0]);
  const float of_row = all_rows && b.normed ? inverse_root(squares_of[warp], b.per_width, b.norm.eps) : inverse;
  const float factor = factor_of_slot(b, chosen, routed, slot, mix, of_row);
  put_half(b.h, v[0], first_row + of_warp, m.h_width(), (slot * m.width + first) / kHalfGroup, factor);
}

// blockIdx.x: 16 rows; blockIdx.y: row of the activations. Slices of h are dealt to the warps in turn.
template <uint32_t kWarps, bool kEngine>
__device__ inline void down_block(const DownMaps& maps, const MixtureBoxes& b, const swy_step* step) {
  extern __shared__ __align__(kBoxAlignment) char dynamic[];
  __shared__ Asked arrived[kWarps];
  __shared__ Chosen chosen;
  Stamps stamps(kStampDown);
  const Mixture& m = b.m;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = blockIdx.x * kTileRows;
  const uint32_t per_slot = m.width / kSlice, slices = b.h_slices();
  const uint32_t mine = warp < slices ? (slices - warp + kWarps - 1) / kWarps : 0;
  const uint32_t tile_scales = scales_bytes(m.down, kTileRows);
  // [i][warp], so that neighbouring slices are next to each other.
  char *boxes = dynamic, *scales = boxes + kWarps * b.boxes_per_warp(kWarps) * kTileBytes;
  if constexpr (kEngine) begin_slots(maps.down, arrived[warp]);
  release_next();
  // The logits are ready: gate_up_boxes lets this kernel begin only after it has waited for them itself.
  const bool exists = threadIdx.x < m.experts;
  const float logit = exists ? __ldcg(m.logits + blockIdx.y * m.experts + threadIdx.x) : 0.0f;
  choose<32 * kWarps>(logit, exists, m.top_k, chosen);
  ask_for_slots<kWarps, kEngine>({boxes, scales, mine, per_slot, tile_scales, arrived[warp]}, maps, m, chosen, first);
  stamps.note(kAsked);
  const bool empty = step_rows(step, m.domain) <= blockIdx.y;
  const uint32_t row = threadIdx.x / 4, at = blockIdx.y * m.hidden + first + row;
  float* to = empty || row >= kTileRows || threadIdx.x % 4 != 0 ? nullptr : m.y + at;
  const float* added = to == nullptr || m.residual == nullptr ? nullptr : m.residual + at;
  const uint32_t group = blockIdx.y * m.h_width() / 64 + warp * (kSlice / 64);
  const auto* words_at = reinterpret_cast<const uint4*>(b.h.words) + group * 8 + lane;
  const auto* scales_at = reinterpret_cast<const float4*>(b.h.scales) + group + lane % 4;
  uint32_t own = shared_at(boxes) + warp * kTileBytes, in_box = lane_of_box(), share = share_of_lane();
  uint32_t joined = shares_of_row(shared_at(boxes)), boxes_at = shared_at(&arrived[warp]), count = mine;
  uint32_t rounds = b.boxes_per_warp(kWarps);
  PairPlaces places(scales + warp * tile_scales, m.down, warp % per_slot, kTileRows, 0);
  if (mine < rounds) clear_shares(own + mine * kWarps * kTileBytes, share, 1);
  pin(own), pin(in_box), pin(share), pin(joined), pin(boxes_at), pin(count);
  pin(rounds), pin(to), pin(added);
  if constexpr (kEngine) pin(words_at), pin(scales_at);  // the others lack registers
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  const float residual = added != nullptr ? __ldcg(added) : 0.0f;
  uint4 words[1];
  float4 of;
  if (count != 0) words[0] = __ldcg(words_at), of = __ldcg(scales_at);
#pragma unroll 1
  for (uint32_t i = 0; i < count; ++i) {
    if constexpr (kEngine) {
      if (i == 0) barrier_wait(boxes_at, 0);
    }
    stamps.note(kArrived);
    if (i != 0) {
      const uint32_t slice = warp + i * kWarps;
      places = PairPlaces(scales + slice * tile_scales, m.down, slice % per_slot, kTileRows, 0);
    }
    if constexpr (!kEngine) {
      if (i == 0) arrived_async();
      __syncwarp();  // each warp has copied what it reads itself
    }
    HalvesOperand<1> x;
    x.take(words);
    x.of = of;
    if (i + 1 < count) {
      words[0] = __ldcg(words_at + (i + 1) * kWarps * 32), of = __ldcg(scales_at + (i + 1) * kWarps * 4);
    }
    stamps.note(kRead);
    multiply_halves<1>(own + i * kWarps * kTileBytes, in_box, share, places, 0, x);
  }
  stamps.note(kMultiplied);
  __syncthreads();
  if (row >= kTileRows) return;  // whole warps
  float sum = join_shares<kWarps>(joined, kTileBytes);
#pragma unroll 1
  for (uint32_t i = 1; i < rounds; ++i) sum += join_shares<kWarps>(joined + i * kWarps * kTileBytes, kTileBytes);
  if (to != nullptr) *to = sum + residual;
}

}  // namespace gpu
