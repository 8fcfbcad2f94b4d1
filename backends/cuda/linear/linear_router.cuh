// SPDX-License-Identifier: Apache-2.0
// A block of linear_boxes.cu that computes logits of four experts from the projection's input (linear_router.h).
#pragma once

#include "linear_heads.cuh"
#include "linear_router.h"

namespace gpu {

constexpr uint32_t kBlockExperts = kTileRows / kDigits;

// Shared memory of a block: a box for each slice, scales, then scales of activations, and elements of R diag(w).
constexpr uint32_t kRouterScratch = kSliceWarps * 256, kRouterKept = kBlockExperts * 16 * kSliceThreads;
inline uint32_t router_shared(uint32_t slices, uint32_t scale_bytes) {
  return 1024 + kSliceWarps / teams_of(slices) * kTileBytes + scale_bytes + kRouterScratch + kRouterKept;
}

struct RouterBlocks {
  CUtensorMap map;  // of `through`
  RouterRows of;
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// The product with the residual: a warp has two experts, and a lane eight columns.
template <uint32_t kRows>
struct ResidualShare {
  static constexpr uint32_t kWarps = kSliceWarps / 2, kEach = kBlockExperts / 2;
  static_assert(kEach * 2 * sizeof(float4) * kSliceThreads == kRouterKept);
  float4* kept;  // in shared memory: this thread's elements of R diag(w), a quarter of an expert's every kSliceThreads
  const float* from;
  uint32_t first = threadIdx.x / (kWarps * 32) * kEach;  // of this warp's experts
  bool in;

  // Of experts from `expert` on; needs no input of the step.
  __device__ ResidualShare(const RouterRows& r, const float* residual, uint32_t expert, void* memory)
      : kept(static_cast<float4*>(memory) + threadIdx.x) {
    const uint32_t eight = threadIdx.x % (kWarps * 32);
    in = eight * 8 < r.router.width;
    from = residual + eight * 8;
    float norm[8] = {};
    if (in) plain_eight(r.norm, eight, norm);
#pragma unroll
    for (uint32_t k = 0; k < kEach; ++k) {
      const uint32_t e = expert + first + k;
      const Weight& w = e < r.experts() ? r.router : r.gate;
      float of[8] = {};
      if (in && e < r.rows()) plain_eight(w, uint64_t{e < r.experts() ? e : 0} * (w.width / 8) + eight, of);
#pragma unroll
      for (int j = 0; j < 8; ++j) of[j] *= norm[j] + r.bias;
      kept[2 * k * kSliceThreads] = make_float4(of[0], of[1], of[2], of[3]);
      kept[(2 * k + 1) * kSliceThreads] = make_float4(of[4], of[5], of[6], of[7]);
    }
    pin(from);
  }
  __device__ void load(uint32_t rows, uint32_t width, float (&v)[kRows][8]) const {
#pragma unroll
    for (uint32_t m = 0; m < kRows; ++m) {
#pragma unroll
      for (int j = 0; j < 8; ++j) v[m][j] = 0;
      if (in && m < rows) load_eight_fresh(from + m * width, v[m]);
    }
  }
  // Writes this warp's share of the products of all rows, v, to `sums`.
  __device__ void multiply(const float (&v)[kRows][8], float (&sums)[kRows][kBlockExperts][kWarps]) const {
    float sum[kRows][kEach];
#pragma unroll
    for (uint32_t k = 0; k < kEach; ++k) {
      const float4 a = kept[2 * k * kSliceThreads], b = kept[(2 * k + 1) * kSliceThreads];
#pragma unroll
      for (uint32_t m = 0; m < kRows; ++m) {
        const float low = fmaf(v[m][0], a.x, fmaf(v[m][1], a.y, fmaf(v[m][2], a.z, v[m][3] * a.w)));
        sum[m][k] = fmaf(v[m][4], b.x, fmaf(v[m][5], b.y, fmaf(v[m][6], b.z, fmaf(v[m][7], b.w, low))));
      }
    }
    constexpr uint32_t kLanes = 32 / kEach;  // that have the same sum
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t m = 0; m < kRows; ++m) {
      const float mine = sum_lanes<kEach, 16>(sum[m]);
      if (lane % kLanes == 0) sums[m][first + lane / kLanes][threadIdx.x / 32 % kWarps] = mine;
    }
  }
};

// This warp's slice of all rows of the projection's input, heads of the delta rule or others, and its product with a
// box of `through`.
template <bool kHeads, uint32_t kRows>
struct RouterSlice {
  using Places = std::conditional_t<kRows == 1 && !kHeads, ScalePlaces, PairPlaces>;
  std::conditional_t<kHeads, HeadPlaces<kRows>, const float*> from;
  Places places;
  uint32_t rows, in_box = lane_of_box(), share = share_of_lane();

  __device__ RouterSlice(const Boxes& b, const RouterRows& r, uint32_t slice, uint32_t of_step, const char* scales)
      : from([&] {
          if constexpr (kHeads) {
            return HeadPlaces<kRows>(b, slice, of_step);
          } else {
            return b.p.x + slice * kSlice + threadIdx.x % 32 * 8;
          }
        }()),
        places(scales, r.through, slice, kTileRows, b.scale_bytes / 2),
        rows(of_step) {
    pin(in_box), pin(share);
    if constexpr (!kHeads) pin(from);
  }
  // `arrive` waits for scales and the box; it lies at `own`.
  template <class Arrive>
  __device__ void multiply(const Boxes& b, uint32_t own, float4* scratch, const Arrive& arrive) const {
    if constexpr (kHeads) {
      const HalvesOperand<kRows> x = from.load(b, scratch);
      arrive();
      multiply_halves(own, in_box, share, places, 0, x);
    } else {
      SliceRows<kRows, kRows == 1> x;
      x.load(from, b, rows);
      arrive();
      Piece piece[kRows];
#pragma unroll
      for (uint32_t m = 0; m < kRows; ++m) piece[m] = make_piece(x.v[m]);
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

// At the end 16 lanes have an expert: 4 / kRows of them a digit, for each row of the activations.
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
  char* scratch = scales + b.scale_bytes;
  const Residual residual(r, b.p.residual, tile * kBlockExperts, scratch + kRouterScratch);
  if (!works && warp < kColumns) clear_shares(own, share_of_lane(), 1);
  const uint32_t rows = step_rows(step, b.p.domain);
  const uint32_t row = threadIdx.x / 4, expert = tile * kBlockExperts + row / kDigits, digit = row % kDigits;
  const uint32_t x_row = threadIdx.x % 4 / kThreads, sharer = threadIdx.x % kThreads;
  const bool writes = row < kTileRows && digit == 0 && sharer == 0 && x_row < rows && expert < r.rows();
  float* to = !writes ? nullptr : expert < r.experts() ? r.logits + x_row * r.experts() + expert : r.gates + x_row;
  const float factor = row < kTileRows ? r.factors[expert] : 0.0f;
  const RouterSlice<kHeads, kRows> slice(b, r, works ? warp : 0, rows, scales);
  uint32_t joined = shares_of_row(shared_at(boxes)), scales_at = shared_at(&scales_arrived),
           box_at = shared_at(&arrived[warp]);
  pin(own), pin(to), pin(joined), pin(scales_at), pin(box_at);
  release_next();
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  float v[kRows][8];
  residual.load(rows, r.router.width, v);
  if (works) {
    slice.multiply(b, own, reinterpret_cast<float4*>(scratch) + warp * 16,
                   [&] { barrier_wait(scales_at, 0), barrier_wait(box_at, 0); });
  }
  residual.multiply(v, sums);
  stamps.note(kMultiplied);
  __syncthreads();
  if (row >= kTileRows) return;  // whole warps
  float sum = join_shares<kColumns, kThreads>(joined, kTileBytes);
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
