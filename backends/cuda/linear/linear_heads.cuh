// SPDX-License-Identifier: Apache-2.0
// A block of linear_boxes.cu whose input are heads of the delta rule, as integers that lack the norm's factor, or of
// attention, which have none.
#pragma once

#include "common/slices_halves.cuh"
#include "linear_boxes.cuh"

namespace gpu {

// A warp's activations. Where a lane finds its words, and the scales and
// squares of a row and group: its own group of one row or, of several, row lane / 4 and group lane % 4.
template <uint32_t kRows>
struct HeadPlaces {
  using Operand = HalvesOperand<kRows>;
  static constexpr uint32_t kEach = Operand::kEach;
  const uint4* words;
  const float4* scales;
  const float* squares;
  bool there, of_there;

  __device__ HeadPlaces(const Boxes& b, uint32_t slice, uint32_t rows) {
    const uint32_t lane = threadIdx.x % 32, groups = b.p.width / 64, parts = head_parts(b.heads.dim);
    const uint32_t row = lane / 8 / kEach, of_row = Operand::kHeld ? 0 : lane % 16 / 4;
    const uint32_t group = slice * 4 + lane % 4;
    there = row < rows, of_there = of_row < rows && (Operand::kHeld || lane < 16);
    words =
        reinterpret_cast<const uint4*>(b.heads.x.words) + (row * groups + slice * 4 + lane / 8 % kEach) * 8 + lane % 8;
    scales = reinterpret_cast<const float4*>(b.heads.x.scales) + of_row * groups + group;
    squares = b.heads.squares + of_row * b.squares + group * 64 / b.heads.dim * parts;
    pin(words), pin(scales);
  }
  // The factor of the norm of the head whose squares are at `at`.
  __device__ static float factor(const Boxes& b, const float* at) {
    const auto* four = reinterpret_cast<const float4*>(at);
    float4 s = __ldcg(four);
    if (b.heads.dim > 4 * kHeadPart) {
      const float4 more = __ldcg(four + 1);
      s.x += more.x, s.y += more.y, s.z += more.z, s.w += more.w;
    }
    return rsqrtf(fmaf((s.x + s.y) + (s.z + s.w), b.per_dim, b.heads.eps));
  }
  // `shared` [16]: the warp's.
  __device__ Operand load(const Boxes& b, float4* shared) const {
    Operand x;
    uint4 w[kRows];
    float4 of = make_float4(0, 0, 0, 0);
#pragma unroll
    for (uint32_t s = 0; s < kRows; ++s) w[s] = there ? __ldcg(words + s * kEach * 8) : make_uint4(0, 0, 0, 0);
    if (of_there) {
      of = __ldcg(scales);
      if (kRows < kQuad || b.heads.squares != nullptr) {
        const float first = factor(b, squares);
        of.x *= first;
        of.z *= b.heads.dim == 32 ? factor(b, squares + head_parts(32)) : first;
      }
    }
    x.take(w);
    if constexpr (Operand::kHeld) {
      x.of = of;
    } else {
      const uint32_t lane = threadIdx.x % 32;
      if (lane < 16) shared[lane] = of;
      __syncwarp();
      x.of_row = shared_at(shared + lane % 4 / kEach * 4 + lane % kEach);
      pin(x.of_row);
    }
    return x;
  }
};

// A tile times the slice, by as few instructions as its scales allow.
template <uint32_t kRows>
__device__ inline void multiply_heads_tile(uint32_t at, uint32_t in_box, uint32_t share, const PairPlaces& places,
                                           uint32_t tile, const HalvesOperand<kRows>& x) {
  if constexpr (kRows == kQuad) {
    if (places.plain()) {
      multiply_plain_halves(at, in_box, share, places, tile, x);
      return;
    }
  }
  multiply_halves(at, in_box, share, places, tile, x);
}

template <uint32_t kTeams, uint32_t kRows, bool kEngine>
__device__ void multiply_heads(const Maps& maps, const Boxes& b, const swy_step* step, char* dynamic) {
  __shared__ Asked arrived[kSliceWarps], scales_arrived;
  const Projection& p = b.p;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t first = blockIdx.x * b.tiles, tiles = min(b.tiles, p.first_task[p.count] - first);
  const Share<kTeams> mine(b.slices(), tiles);
  Stamps stamps(kStampHeads);
  char* boxes = first_box(dynamic);  // [slice][tile]
  char* scales = boxes + Share<kTeams>::kColumns * b.tiles * kTileBytes;
  auto* scratch = reinterpret_cast<float4*>(scales + b.tiles * b.scale_bytes) + warp * 16;
  const SliceBoxes asked{boxes + (mine.slice * b.tiles + mine.begin) * kTileBytes, mine.slice, first + mine.begin,
                         mine.exists ? mine.count : 0, arrived[warp]};
  if constexpr (kEngine) {
    begin_tiles(maps, b, asked, first, tiles, scales, scales_arrived);
  } else {
    begin_tiles_async(b, asked, first, tiles, scales);
  }
  stamps.note(kAsked);
  const uint32_t rows = step_rows(step, p.domain);  // 0: writes nothing, but requested data must arrive
  ResultPlace place = place_of_result<kRows, kEngine>(b, first, tiles, rows);
  const HeadPlaces<kRows> heads(b, mine.exists ? mine.slice : 0, rows);
  uint32_t own = shared_at(boxes) + (mine.slice * b.tiles + mine.begin) * kTileBytes, in_box = lane_of_box();
  uint32_t share = share_of_lane(), joined = shares_of_row(shared_at(boxes)), apart = b.tiles * kTileBytes;
  uint32_t count = mine.exists ? mine.count : 0, tiles_at = shared_at(&arrived[warp]),
           scales_at = shared_at(&scales_arrived);
  const PairPlaces places(scales + mine.begin * b.scale_bytes, b.like, mine.slice, kTileRows, b.scale_bytes / 2);
  if (!mine.exists) clear_shares(own, share, mine.count);
  pin(own), pin(in_box), pin(share), pin(count), pin(tiles_at), pin(scales_at);
  pin(place.to), pin(place.added);
  release_next();  // earlier, the router would take the room that gate_up needs
  if constexpr (kEngine) ask_for_others(maps, b, asked);
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  const float residual = place.added != nullptr ? __ldcg(place.added) : 0.0f;
  if constexpr (!kEngine) {
    arrived_async();
    __syncthreads();
  }
  if (count != 0) {
    const HalvesOperand<kRows> x = heads.load(b, scratch);
    stamps.note(kRead);
    if constexpr (kEngine) {
      barrier_wait(scales_at, 0);
      barrier_wait(tiles_at, (count - 1) & 1);
    }
    stamps.note(kArrived);
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i) {
      multiply_heads_tile(own + i * kTileBytes, in_box, share, places, i, x);
    }
  }
  stamps.note(kMultiplied);
  __syncthreads();
  if (threadIdx.x / 4 >= tiles * kTileRows) return;  // whole warps
  const float sum = join_shares<Share<kTeams>::kColumns, 4 / kRows>(joined, apart);
  if (place.to != nullptr) *place.to = sum + residual;
}

}  // namespace gpu
