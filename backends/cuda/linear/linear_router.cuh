// SPDX-License-Identifier: Apache-2.0
// A block of linear_boxes.cu that computes logits of four experts from the projection's input (linear_router.h).
#pragma once

#include "linear_heads.cuh"
#include "linear_router.h"

namespace gpu {

constexpr uint32_t kBlockExperts = kTileRows / kDigits;

struct RouterBlocks {
  CUtensorMap map;  // of `through`
  RouterRows of;
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// The product with the residual: a warp has two experts, and a lane eight columns.
template <uint32_t kRows>
struct ResidualShare {
  static constexpr uint32_t kWarps = kSliceWarps / 2, kEach = kBlockExperts / 2;
  static constexpr uint32_t kMostColumns = kWarps * 256;
  float of[kEach][8];
  uint32_t eight = threadIdx.x % (kWarps * 32), first = threadIdx.x / (kWarps * 32) * kEach;
  bool in;

  // Of experts from `expert` on; needs no input of the step.
  __device__ ResidualShare(const RouterRows& r, uint32_t expert) {
    in = eight * 8 < r.router.width;
    float norm[8] = {};
    if (in) plain_eight(r.norm, eight, norm);
#pragma unroll
    for (uint32_t k = 0; k < kEach; ++k) {
      const uint32_t e = expert + first + k;
      const Weight& w = e < r.experts() ? r.router : r.gate;
#pragma unroll
      for (int j = 0; j < 8; ++j) of[k][j] = 0;
      if (in && e < r.rows()) plain_eight(w, uint64_t{e < r.experts() ? e : 0} * (w.width / 8) + eight, of[k]);
#pragma unroll
      for (int j = 0; j < 8; ++j) of[k][j] *= norm[j] + r.bias;
    }
  }
  // Adds to `sums` this warp's share of the products of all rows with v.
  __device__ void multiply(const float (&v)[kRows][8], float (&sums)[kRows][kBlockExperts][kWarps]) const {
#pragma unroll
    for (uint32_t m = 0; m < kRows; ++m) {
      float sum[kEach] = {};
#pragma unroll
      for (uint32_t k = 0; k < kEach; ++k) {
#pragma unroll
        for (int j = 0; j < 8; ++j) sum[k] = fmaf(v[m][j], of[k][j], sum[k]);
      }
      const float mine = sum_lanes<kEach, 16>(sum);
      constexpr uint32_t kLanes = 32 / kEach;  // that have the same sum
      const uint32_t lane = threadIdx.x % 32;
      if (lane % kLanes == 0) sums[m][first + lane / kLanes][threadIdx.x / 32 % kWarps] = mine;
    }
  }
};

// Multiplies this warp's slice of all rows of the projection's input with its box of `through`, at `own`.
template <bool kHeads, uint32_t kRows>
struct RouterSlice {
  using Places = std::conditional_t<kRows == 1 && !kHeads, ScalePlaces, PairPlaces>;
  uint32_t slice, rows;
  Places places;

  __device__ void multiply(const Boxes& b, uint32_t own, float4* scratch, uint32_t scales_at, uint32_t box_at) const {
    const uint32_t in_box = lane_of_box(), share = share_of_lane();
    const auto arrive = [&] { barrier_wait(scales_at, 0), barrier_wait(box_at, 0); };
    if constexpr (kHeads) {
      const HalvesOperand<kRows> x = HeadPlaces<kRows>(b, slice, rows).load(b, scratch);
      arrive();
      multiply_halves(own, in_box, share, places, 0, x);
    } else {
      SliceRows<kRows, kRows == 1> x_rows;
      x_rows.load(b.p.x + slice * kSlice + threadIdx.x % 32 * 8, b, rows);
      arrive();
      float factors[8], squares[kRows];
      factors_of(b, slice, factors);  // 1: the projection has no norm
      Piece piece[kRows];
      x_rows.make_pieces(b, factors, squares, piece);
      if constexpr (kRows == 1) {
        LaneScales<1> of;
        of.load(places, 0);
        multiply_slice<1>(own, in_box, share, of, places, 0, make_operand(piece[0], 1.0f), 1);
      } else {
        multiply_pair(own, in_box, share, places, 0, make_pair_operand(piece));
      }
    }
  }
};

// Lanes of a warp have two rows of the activations at most, and two blocks of 16 lanes an expert each: 4 / kRows of
// them each digit of a row.
template <bool kHeads, uint32_t kTeams, uint32_t kRows>
__device__ void multiply_router(const RouterBlocks& router, const Boxes& b, const swy_step* step, char* dynamic) {
  using Residual = ResidualShare<kRows>;
  constexpr uint32_t kColumns = Share<kTeams>::kColumns, kThreads = 4 / kRows;
  __shared__ Asked arrived[kSliceWarps], scales_arrived;
  __shared__ float sums[kRows][kBlockExperts][Residual::kWarps];
  const RouterRows& r = router.of;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, tile = blockIdx.x - b.tile_blocks;
  const bool works = warp < b.slices();
  Stamps stamps(kHeads ? kStampHeads : kStampPlain);
  char *boxes = first_box(dynamic), *scales = boxes + kColumns * kTileBytes;
  uint32_t own = shared_at(boxes) + warp * kTileBytes;
  if (lane == 0) {
    arrived[warp].init();
    if (warp == 0) scales_arrived.init();
    publish_barriers();
    if (works) {
      arrived[warp].expect(kTileBytes);
      arrived[warp].ask(boxes + warp * kTileBytes, router.map, warp * kBoxBytes, tile * kTileRows);
    }
    if (warp == 0) {
      scales_arrived.expect(b.scale_bytes);
      scales_arrived.ask_scales(reinterpret_cast<uint16_t*>(scales), r.through, uint64_t{tile} * kTileRows, kTileRows);
    }
  }
  __syncthreads();
  stamps.note(kAsked);
  const Residual residual(r, tile * kBlockExperts);
  if (!works && warp < kColumns) clear_shares(own, share_of_lane(), 1);
  const uint32_t rows = step_rows(step, b.p.domain);
  const uint32_t row = threadIdx.x / 4, expert = tile * kBlockExperts + row / kDigits, digit = row % kDigits;
  const uint32_t x_row = threadIdx.x % 4 / kThreads, sharer = threadIdx.x % kThreads;
  const bool writes = row < kTileRows && digit == 0 && sharer == 0 && x_row < rows && expert < r.rows();
  float* to = !writes ? nullptr : expert < r.experts() ? r.logits + x_row * r.experts() + expert : r.gates + x_row;
  float factor = row < kTileRows ? r.factors[expert] : 0.0f;
  const RouterSlice<kHeads, kRows> slice{
      warp, rows, {scales, r.through, works ? warp : 0, kTileRows, b.scale_bytes / 2}};
  pin(own), pin(to), pin(factor);
  release_next();
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  float v[kRows][8] = {};
#pragma unroll
  for (uint32_t m = 0; m < kRows; ++m) {
    if (residual.in && m < rows) load_eight_fresh(b.p.residual + m * r.router.width + residual.eight * 8, v[m]);
  }
  if (works) {
    slice.multiply(b, own, reinterpret_cast<float4*>(scales + b.scale_bytes) + warp * 16, shared_at(&scales_arrived),
                   shared_at(&arrived[warp]));
  }
  residual.multiply(v, sums);
  stamps.note(kMultiplied);
  __syncthreads();
  if (row >= kTileRows) return;  // whole warps
  float sum = join_shares<kColumns, kThreads>(shares_of_row(shared_at(boxes)), kTileBytes);
  const uint32_t part = digit * 2 + sharer;  // two lanes of a digit have a warp's share each
  float more = sharer < 2 ? sums[x_row][row / kDigits][part] : 0.0f;
#pragma unroll
  for (uint32_t d = 1; d < kThreads; d *= 2) more += __shfl_xor_sync(kAll, more, d);
#pragma unroll
  for (uint32_t d = 4; d < 16; d *= 2) {
    sum += __shfl_xor_sync(kAll, sum, d);
    more += __shfl_xor_sync(kAll, more, d);
  }
  if (to != nullptr) *to = fmaf(sum, factor, more);
  stamps.end();
}

#endif

}  // namespace gpu
