// SPDX-License-Identifier: Apache-2.0
// The router of few rows and its choice (moe_router.cuh), with the form of the rows that the experts' products need, in
// one launch.
//
//   route_quads  writes rows as integers, and the choice; the multiplying blocks make their list of it (quad_list.cuh)
//   route_few    writes sorted copies of rows as panels (moe_grouped.cuh). Every expert has room for all rows, so a
//                copy's place does not depend on other clusters. Only the list of tiles waits for them; the block that
//                chooses last makes it
#pragma once

#include "moe_router.cuh"

namespace gpu {

#ifdef SWY_HOPPER

template <int kSpans>
struct alignas(16) PanelMemory : RouteMemory<kSpans> {
  float4 places[kTeam][kMostChosen / 4];  // [row] bits of sorted rows
  uint4 pieces[kSpans][kTeam][16];        // rows, normed, as pieces of panels
  uint32_t counts[kRoutedExperts + 1], begins[kRoutedExperts + 1], sizes[kMostTileGroups + 1];
  uint64_t placed;
  bool last;
};

// Rows for quads.cuh.
struct QuadRouter : Router<2> {
  using Router<2>::Router;

  // Integers of row first + warp: a lane has eight columns.
  __device__ void put_integers() {
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = x[i] * scale;
    const Piece piece = make_piece(v);
    if (from == nullptr) return;  // the width is a multiple of 256
    put_piece(f.p.quads.x, piece, first + warp, f.p.m.hidden / 64, column0 / 64 + lane / 8);
  }
  __device__ void put_row() {
    const uint32_t row = first + rank, expert = chosen_expert();
    if (row >= rows) return;
    if (warp == 0 && lane < f.p.m.top_k) f.p.quads.ids[row * f.p.m.top_k + lane] = static_cast<uint16_t>(expert);
    put_choice(expert * f.p.room * 8 + row);
  }
};

// Rows as panels.
template <int kSpans>
struct PanelRouter : Router<kSpans> {
  using Router<kSpans>::f, Router<kSpans>::rank, Router<kSpans>::first, Router<kSpans>::rows, Router<kSpans>::warp,
      Router<kSpans>::lane, Router<kSpans>::x, Router<kSpans>::scale, Router<kSpans>::kEach;
  PanelMemory<kSpans>& memory;

  __device__ PanelRouter(const RouteFew& few, PanelMemory<kSpans>& m, uint32_t of)
      : Router<kSpans>(few, m, of), memory(m) {}

  // The thread that initialises the other barriers calls this.
  __device__ void begin_barrier() {
    barrier_begin(&memory.placed, 1);
    barriers_begun();
    barrier_expect(&memory.placed, this->chosen_rows() * sizeof memory.places[0]);
  }

  // Element e of eight belongs to piece 4 u + e % 4 (panel_piece).
  __device__ void put_pieces() {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const uint32_t column = lane * kEach + i, in = column % kSpan, t = in / 32, u = in % 32 / 8, e = in % 8;
      auto* piece = reinterpret_cast<uint16_t*>(&memory.pieces[column / kSpan][warp][4 * u + e % 4]);
      piece[t * 2 + e / 4] = __bfloat16_as_ushort(__float2bfloat16_rn(x[i] * scale));
    }
  }

  // Tells the team the places of row first + rank. Returns whether this row was the last of all to choose.
  __device__ bool place_row() {
    const uint32_t row = first + rank, expert = this->chosen_expert();
    const bool there = row < rows;
    if (warp != 0) {
      if (there) this->put_choice(0);
      return false;
    }
    uint32_t place = 0;
    if (there && lane < f.p.m.top_k) place = expert * f.p.room * 8 + atomicAdd(f.p.counts + expert, 1u);
    if (there) push_places(place);
    __syncwarp();
    const bool last = lane == 0 && (there || row == 0) && comes_last(f.done, max(rows, 1u));
    if (there) this->put_choice(place);
    return last;
  }
  __device__ void push_places(uint32_t place) {
    float v[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) v[i] = __uint_as_float(__shfl_sync(kAll, place, lane % 2 * 4 + i));
    if (lane < 2 * kTeam) {
      push(&memory.places[rank][lane % 2], &memory.placed, lane / 2, make_float4(v[0], v[1], v[2], v[3]));
    }
  }

  // Copies of this block's columns of all rows of the team.
  __device__ void copy_rows() {
    const uint32_t slots = f.p.slots(), spans = (f.p.m.hidden + kSpan - 1) / kSpan;
    for (uint32_t i = threadIdx.x; i < kSpans * kTeam * 16; i += kRouteThreads) {
      const uint32_t piece = i % 16, row = i / 16 % kTeam, in = i / (16 * kTeam), span = rank * kSpans + in;
      if (first + row >= rows || span >= spans) continue;
      const uint4 v = memory.pieces[in][row][piece];
      const auto* places = reinterpret_cast<const uint32_t*>(memory.places[row]);
      for (uint32_t k = 0; k < slots; ++k) {
        const uint32_t to = k < f.p.m.top_k ? places[k] : this->shared_place() + row;
        const uint64_t panel = (uint64_t{span} * f.p.groups + to / 8) * kPanelBytes;
        *reinterpret_cast<uint4*>(f.p.x + panel + panel_piece_offset(to, piece)) = v;
      }
    }
  }

  // The tiles of all rows. Leaves the counts at zero.
  __device__ void list_experts() {
    for (uint32_t e = threadIdx.x; e <= f.p.m.experts; e += kRouteThreads) {
      const bool routed = e < f.p.m.experts;
      memory.counts[e] = routed ? __ldcg(f.p.counts + e) : f.p.m.shared_width != 0 ? rows : 0;
      memory.begins[e] = e * f.p.room;
      if (routed) f.p.counts[e] = 0;
    }
    if (threadIdx.x <= kMostTileGroups) memory.sizes[threadIdx.x] = 0;
    __syncthreads();
    put_tiles(f.p, memory.counts, memory.begins, memory.sizes);
  }
};

// From a block's start until its sums have been sent; false if it has nothing to do.
template <class R>
__device__ inline bool sum_rows(R& r, Stamps& stamps) {
  r.load_weights();
  __syncthreads();
  cluster_meet();  // all blocks of the team have begun, and can be pushed to
  if (r.first >= r.rows && r.first != 0) return false;
  r.prepare();
  stamps.note(kAsked);
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  release_next();
  r.load_row();
  const float2 moments = r.put_terms();
  __syncthreads();
  stamps.note(kRead);
  r.push_moments(moments);
  r.multiply_and_push();
  r.take_moments();
  return true;
}

#endif  // SWY_HOPPER

// kTeam blocks per eight rows.
static __global__ void __launch_bounds__(kRouteThreads)
    route_quads(const __grid_constant__ RouteFew f, const swy_step* step) {
#ifdef SWY_HOPPER
  __shared__ RouteMemory<2> memory;
  Stamps stamps(kStampRoute);
  QuadRouter r(f, memory, step_rows(step, f.p.m.domain));
  if (threadIdx.x == 0) r.begin_barriers();
  if (!sum_rows(r, stamps)) return;
  r.put_integers();
  stamps.note(kArrived);
  r.choose_row();
  stamps.note(kMultiplied);
  r.put_row();
#endif
}

// The same for quads. kSpans: of the width in each block.
template <int kSpans>
__global__ void __launch_bounds__(kRouteThreads) route_few(const __grid_constant__ RouteFew f, const swy_step* step) {
#ifdef SWY_HOPPER
  __shared__ PanelMemory<kSpans> memory;
  Stamps stamps(kStampRoute);
  PanelRouter<kSpans> r(f, memory, step_rows(step, f.p.m.domain));
  if (threadIdx.x == 0) r.begin_barrier(), r.begin_barriers();
  if (!sum_rows(r, stamps)) return;
  r.put_pieces();
  stamps.note(kArrived);
  r.choose_row();
  const bool last = r.place_row();
  stamps.note(kMultiplied);
  __syncthreads();
  barrier_wait(&memory.placed, 0);
  r.copy_rows();
  if (threadIdx.x == 0) memory.last = last;
  __syncthreads();
  if (memory.last) r.list_experts();
#endif
}

}  // namespace gpu
