// SPDX-License-Identifier: Apache-2.0
// A block of linear_boxes.cu that computes logits of four experts from the projection's input (linear_router.h).
#pragma once

#include "linear_heads.cuh"
#include "linear_router.h"

namespace gpu {

constexpr uint32_t kBlockExperts = kTileRows / kDigits;

// Shared memory of a block: a box for each slice, scales, then what makes operands of activations, and elements of
// R diag(w).
constexpr uint32_t kRouterKept = kBlockExperts * 16 * kSliceThreads;
__host__ __device__ inline uint32_t router_scratch(uint32_t rows) {
  return kSliceWarps * (rows > 2 ? static_cast<uint32_t>(sizeof(QuadMemory)) : 256);
}
inline uint32_t router_shared(uint32_t slices, uint32_t scale_bytes, uint32_t rows) {
  return 1024 + kSliceWarps / teams_of(slices) * kTileBytes + scale_bytes + router_scratch(rows) + kRouterKept;
}

struct RouterBlocks {
  CUtensorMap map;  // of `through`
  RouterRows of;
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// The product with the residual: a lane has eight columns of two experts; of four rows, whose elements it holds, four
// columns of four experts.
template <uint32_t kRows>
struct ResidualShare {
  static constexpr uint32_t kFours = kRows == kQuad ? 1 : 2, kEach = kBlockExperts / kFours;
  static constexpr uint32_t kWarps = kSliceWarps / kFours;  // with the same experts
  static_assert(kEach * kFours * sizeof(float4) * kSliceThreads == kRouterKept);
  float4* kept;  // in shared memory: this thread's elements of R diag(w), four of an expert every kSliceThreads
  const float* from;
  uint32_t first = threadIdx.x / (kWarps * 32) * kEach;  // of this warp's experts
  bool in;

  // Of experts from `expert` on; needs no input of the step.
  __device__ ResidualShare(const RouterRows& r, const float* residual, uint32_t expert, void* memory)
      : kept(static_cast<float4*>(memory) + threadIdx.x) {
    const uint32_t column = threadIdx.x % (kWarps * 32) * 4 * kFours;
    in = column < r.router.width;
    from = residual + column;
    float4 norm[kFours];
    load_plain(r.norm, column, in, norm);
#pragma unroll
    for (uint32_t k = 0; k < kEach; ++k) {
      const uint32_t e = expert + first + k;
      const bool routed = e < r.experts();
      float4 of[kFours];
      load_plain(routed ? r.router : r.gate, uint64_t{routed ? e : 0} * r.router.width + column, in && e < r.rows(),
                 of);
#pragma unroll
      for (uint32_t i = 0; i < kFours; ++i) {
        const float4 n = norm[i];
        of[i].x *= n.x + r.bias, of[i].y *= n.y + r.bias, of[i].z *= n.z + r.bias, of[i].w *= n.w + r.bias;
        kept[(k * kFours + i) * kSliceThreads] = of[i];
      }
    }
    pin(from);
  }
  // Elements of a weight in f32 or bf16 from `at` on, or zeros.
  __device__ static void load_plain(const Weight& w, uint64_t at, bool there, float4 (&v)[kFours]) {
    if constexpr (kFours == 2) {
      float eight[8] = {};
      if (there) plain_eight(w, at / 8, eight);
      v[0] = make_float4(eight[0], eight[1], eight[2], eight[3]);
      v[1] = make_float4(eight[4], eight[5], eight[6], eight[7]);
    } else {
      v[0] = make_float4(0, 0, 0, 0);
      if (there) v[0] = make_float4(plain_at(w, at), plain_at(w, at + 1), plain_at(w, at + 2), plain_at(w, at + 3));
    }
  }
  __device__ void load(uint32_t rows, uint32_t width, float4 (&v)[kRows][kFours]) const {
#pragma unroll
    for (uint32_t m = 0; m < kRows; ++m) {
      const auto* of_row = reinterpret_cast<const float4*>(from + m * width);
#pragma unroll
      for (uint32_t i = 0; i < kFours; ++i) v[m][i] = in && m < rows ? __ldcg(of_row + i) : make_float4(0, 0, 0, 0);
    }
  }
  // Writes this warp's share of the products of all rows, v, to `sums`.
  __device__ void multiply(const float4 (&v)[kRows][kFours], float (&sums)[kRows][kBlockExperts][kWarps]) const {
    float sum[kRows][kEach] = {};
#pragma unroll
    for (uint32_t k = 0; k < kEach; ++k) {
#pragma unroll
      for (uint32_t i = 0; i < kFours; ++i) {
        const float4 a = kept[(k * kFours + i) * kSliceThreads];
#pragma unroll
        for (uint32_t m = 0; m < kRows; ++m) {
          const float4& x = v[m][i];
          sum[m][k] = fmaf(x.x, a.x, fmaf(x.y, a.y, fmaf(x.z, a.z, fmaf(x.w, a.w, sum[m][k]))));
        }
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
template <bool kHeads, uint32_t kRows, bool kParts>
struct RouterSlice {
  using Places = std::conditional_t<kRows == 1 && !kHeads, ScalePlaces, PairPlaces>;
  std::conditional_t<kHeads, HeadPlaces<kRows>, std::conditional_t<kParts, HeadPartsPlace, const float*>> from;
  Places places;
  uint32_t rows, in_box = lane_of_box(), share = share_of_lane();

  __device__ RouterSlice(const Boxes& b, const RouterRows& r, uint32_t slice, uint32_t of_step, const char* scales)
      : from([&] {
          if constexpr (kHeads) {
            return HeadPlaces<kRows>(b, slice, of_step);
          } else {
            return place_of_input<kParts>(b, 0, slice);
          }
        }()),
        places(scales, r.through, slice, kTileRows, b.scale_bytes / 2),
        rows(of_step) {
    pin(in_box), pin(share);
  }
  // `scratch`: of router_scratch(), this warp's. `arrive` waits for scales and the box; it lies at `own`.
  template <class Arrive>
  __device__ void multiply(const Boxes& b, uint32_t own, char* scratch, const Arrive& arrive) const {
    if constexpr (kHeads) {
      const HalvesOperand<kRows> x = from.load(b, reinterpret_cast<float4*>(scratch));
      arrive();
      multiply_heads_tile(own, in_box, share, places, 0, x);
    } else {
      SliceRows<kRows, kRows == 1> x;
      x.load(from, b, rows);
      if constexpr (kRows < kQuad) arrive();
      Piece piece[kRows];
#pragma unroll
      for (uint32_t m = 0; m < kRows; ++m) piece[m] = make_piece(x.v[m]);
      if constexpr (kRows == kQuad) {
        const QuadOperand quad = make_quad_operand(
            *reinterpret_cast<QuadMemory*>(scratch), [](uint32_t) { return true; },
            [&](uint32_t round, uint32_t m) { return piece[2 * round + m]; }, [] { __syncwarp(); });
        arrive();
        multiply_any_quad(own, in_box, share, places, 0, quad);
      } else if constexpr (kRows == 1) {
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
template <bool kHeads, uint32_t kTeams, uint32_t kRows, bool kParts = false>
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
  const Residual residual(r, b.p.residual, tile * kBlockExperts, scratch + router_scratch(kRows));
  if (!works && warp < kColumns) clear_shares(own, share_of_lane(), 1);
  const uint32_t rows = step_rows(step, b.p.domain);
  const uint32_t row = threadIdx.x / 4, expert = tile * kBlockExperts + row / kDigits, digit = row % kDigits;
  const uint32_t x_row = threadIdx.x % 4 / kThreads, sharer = threadIdx.x % kThreads;
  const bool writes = row < kTileRows && digit == 0 && sharer == 0 && x_row < rows && expert < r.rows();
  float* to = !writes ? nullptr : expert < r.experts() ? r.logits + x_row * r.experts() + expert : r.gates + x_row;
  const float factor = row < kTileRows ? r.factors[expert] : 0.0f;
  const RouterSlice<kHeads, kRows, kParts> slice(b, r, works ? warp : 0, rows, scales);
  uint32_t joined = shares_of_row(shared_at(boxes)), scales_at = shared_at(&scales_arrived),
           box_at = shared_at(&arrived[warp]);
  pin(own), pin(to), pin(joined), pin(scales_at), pin(box_at);
  release_next();
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  float4 v[kRows][Residual::kFours];
  // Registers do not hold both inputs of four rows, or of one in parts.
  constexpr bool kLater = kParts || (!kHeads && kRows == kQuad);
  if (!kLater || !works) residual.load(rows, r.router.width, v);
  if (works) {
    slice.multiply(b, own, scratch + warp * (router_scratch(kRows) / kSliceWarps), [&] {
      if (kLater) residual.load(rows, r.router.width, v);
      barrier_wait(scales_at, 0), barrier_wait(box_at, 0);
    });
  }
  residual.multiply(v, sums);
  stamps.note(kMultiplied);
  __syncthreads();
  if (row >= kTileRows) return;  // whole warps
  float sum = join_shares<kColumns, kThreads>(joined, kTileBytes);
  // The shares of all warps, over the lanes of an expert and a row of the activations.
  constexpr uint32_t kLanes = kDigits * kThreads;
  float more = 0;
#pragma unroll
  for (uint32_t i = 0; i < (Residual::kWarps + kLanes - 1) / kLanes; ++i) {
    const uint32_t part = i * kLanes + digit * kThreads + sharer;
    if (part < Residual::kWarps) more += sums[x_row][row / kDigits][part];
  }
#pragma unroll
  for (uint32_t d = 1; d < kThreads; d *= 2) more += __shfl_xor_sync(kAll, more, d);
#pragma unroll
  for (uint32_t d = 4; d < 16; d *= 2) {
    sum += __shfl_xor_sync(kAll, sum, d);
    more += __shfl_xor_sync(kAll, more, d);
  }
  if (to != nullptr) *to = fmaf(sum, factor, more);
}

#endif

}  // namespace gpu
