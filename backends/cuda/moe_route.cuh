// The router, its choice, and the sorted copies of few rows for grouped products (moe_grouped.cuh), in one launch.
//
// A cluster of eight blocks has eight rows. Each block multiplies its eighth of the width with all experts, from
// weights that it holds in registers before the rows are there: bf16 times two bf16 terms on tensor cores, as in
// narrow.cuh. Sums go to the block that chooses for their row. Every expert has room for all rows, so that a copy's
// place is known without those of other clusters; only the list of tiles waits for them, and is made by the block that
// chooses last.
#pragma once

#include "choice.cuh"
#include "clusters.cuh"
#include "moe_grouped.cuh"
#include "moe_grouped.h"

namespace gpu {

constexpr uint32_t kTeam = 8, kRouteThreads = kChoiceThreads, kRouteWarps = kRouteThreads / 32;
constexpr uint32_t kRoutedExperts = 256, kExpertsPerWarp = kRoutedExperts / kRouteWarps;

struct RouteFew {
  GroupedMixture p;  // counts: zero between steps
  InputNorm norm;    // of the rows; its weight's data null: they come normed
  uint32_t* done;    // rows that have chosen; zero between steps
};

#ifdef SWY_HOPPER

template <int kSpans>
struct alignas(16) RouteMemory {
  static constexpr uint32_t kWidth = kSpans * kSpan, kStride = kWidth + 32;  // the latter's 64 bytes part the banks
  float4 sums[kTeam][kRoutedExperts / 4];                                    // [block] of this block's row
  float2 moments[kTeam][kTeam];           // [block][row] squares, and the shared expert's gate
  float4 places[kTeam][kMostChosen / 4];  // [row] bits of sorted rows
  uint16_t terms[2][kTeam][kStride];      // rows, in two terms
  uint4 pieces[kSpans][kTeam][16];        // rows, normed, as pieces of panels
  Chosen chosen;
  uint32_t counts[kRoutedExperts + 1], begins[kRoutedExperts + 1], sizes[kMostTileGroups + 1];
  uint64_t summed, placed;
  bool last;
};

// Four neighbouring elements of a row of f32 or bf16, as they lie there.
struct PlainFour {
  uint4 bits;

  __device__ void load(const Weight& w, uint32_t i, bool there) {
    const bool wide = w.dtype == SWY_F32;
    const uint2 v = there && !wide ? __ldg(reinterpret_cast<const uint2*>(w.data) + i / 4) : make_uint2(0, 0);
    bits = there && wide ? __ldg(reinterpret_cast<const uint4*>(w.data) + i / 4) : make_uint4(v.x, v.y, 0, 0);
  }
  __device__ float at(const Weight& w, int i) const {
    const uint32_t wide = i == 0 ? bits.x : i == 1 ? bits.y : i == 2 ? bits.z : bits.w;
    const uint32_t two = i < 2 ? bits.x : bits.y;
    return __uint_as_float(w.dtype == SWY_F32 ? wide : i % 2 == 0 ? two << 16 : two & 0xffff0000u);
  }
};
// What this thread wrote before is visible to who learns of what it writes now.
__device__ inline void release_writes() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// What one block of a team does, in this order.
template <int kSpans>
struct Router {
  using Memory = RouteMemory<kSpans>;
  static constexpr uint32_t kChunks = Memory::kWidth / 32, kEach = Memory::kWidth / 32;

  const RouteFew& f;
  Memory& memory;
  const uint32_t rank = cluster_rank(), first = blockIdx.x / kTeam * kTeam, rows;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, column0 = rank * Memory::kWidth;
  uint4 weights[2][2][kChunks];         // of experts 32 warp + 4 g + 2 m + h: elements 8 t to 8 t + 7 of every 32
  PlainFour norm[kSpans], mix[kSpans];  // of this thread's columns: the norm's, and the shared expert's gate
  float x[kEach];                       // of row first + warp: columns column0 + kEach lane + i
  float scale, own_scale, own_gate;     // of that row's norm; of row first + rank

  __device__ Router(const RouteFew& few, Memory& m, uint32_t of) : f(few), memory(m), rows(of) {}
  __device__ uint32_t chosen_rows() const { return min(rows > first ? rows - first : 0, kTeam); }

  // What no kernel writes. All loads are under way at once.
  __device__ void load_weights() {
    const uint32_t g = lane / 4, t = lane % 4, hidden = f.p.m.hidden;
    const auto* data = reinterpret_cast<const uint16_t*>(f.p.m.router.data);
#pragma unroll
    for (uint32_t m = 0; m < 2; ++m) {
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h) {
        const uint32_t e = warp * kExpertsPerWarp + 4 * g + 2 * m + h;
#pragma unroll
        for (uint32_t c = 0; c < kChunks; ++c) {
          const uint32_t k = column0 + c * 32 + t * 8;
          weights[m][h][c] = e < f.p.m.experts && k < hidden ? load_piece(data + uint64_t{e} * hidden + k) : uint4{};
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kSpans; ++j) {
      const uint32_t k = column0 + lane * kEach + 4 * j;
      norm[j].load(f.norm.weight, k, k < hidden && normed());
      mix[j].load(f.p.m.shared_mix, k, k < hidden && f.p.m.shared_width != 0);
    }
  }
  __device__ bool normed() const { return f.norm.weight.data != nullptr; }

  // By one thread, before others can push.
  __device__ void begin_barriers() {
    barrier_begin(&memory.summed, 1);
    barrier_begin(&memory.placed, 1);
    barriers_begun();
    barrier_expect(&memory.summed, sizeof memory.sums + sizeof memory.moments);
    barrier_expect(&memory.placed, chosen_rows() * sizeof memory.places[0]);
  }

  __device__ void load_row() {
    const uint32_t row = first + warp, k = column0 + lane * kEach;
    const auto* from = reinterpret_cast<const float4*>(f.p.m.x + uint64_t{row} * f.p.m.hidden + k);
    const bool there = row < rows && k < f.p.m.hidden;  // the width is a multiple of what a thread has
#pragma unroll
    for (int j = 0; j < kSpans; ++j) {
      const float4 v = there ? from[j] : make_float4(0, 0, 0, 0);
      x[4 * j] = v.x, x[4 * j + 1] = v.y, x[4 * j + 2] = v.z, x[4 * j + 3] = v.w;
    }
  }

  // Both terms to shared memory, and this block's part of the squares and of the gate to all blocks.
  __device__ void put_terms() {
    float squares = 0, gate = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      squares = fmaf(x[i], x[i], squares);
      x[i] *= normed() ? f.norm.bias + norm[i / 4].at(f.norm.weight, i % 4) : 1.0f;
      gate = fmaf(x[i], mix[i / 4].at(f.p.m.shared_mix, i % 4), gate);
    }
#pragma unroll
    for (int j = 0; j < kSpans; ++j) {
      uint32_t high[2], low[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float v = x[4 * j + 2 * i], w = x[4 * j + 2 * i + 1];
        const __nv_bfloat162 a = __floats2bfloat162_rn(v, w);
        const __nv_bfloat162 b = __floats2bfloat162_rn(v - __low2float(a), w - __high2float(a));
        high[i] = *reinterpret_cast<const uint32_t*>(&a), low[i] = *reinterpret_cast<const uint32_t*>(&b);
      }
      *reinterpret_cast<uint2*>(&memory.terms[0][warp][lane * kEach + 4 * j]) = make_uint2(high[0], high[1]);
      *reinterpret_cast<uint2*>(&memory.terms[1][warp][lane * kEach + 4 * j]) = make_uint2(low[0], low[1]);
    }
    squares = warp_sum(squares), gate = warp_sum(gate);
    if (lane < kTeam) push(&memory.moments[rank][warp], &memory.summed, lane, make_float2(squares, gate));
  }

  // This block's sums of eight rows, each to the block that chooses for it.
  __device__ void multiply_and_push() {
    const uint32_t g = lane / 4, t = lane % 4;
    float acc[2][2][4] = {};  // [term][m]
#pragma unroll
    for (uint32_t c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int term = 0; term < 2; ++term) {
        const uint4 b = *reinterpret_cast<const uint4*>(&memory.terms[term][g][c * 32 + t * 8]);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const uint4 &even = weights[m][0][c], &odd = weights[m][1][c];
          matrix_multiply(acc[term][m], {even.x, odd.x, even.y, odd.y}, b.x, b.y);
          matrix_multiply(acc[term][m], {even.z, odd.z, even.w, odd.w}, b.z, b.w);
        }
      }
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float v[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] = acc[0][i / 2][i % 2 * 2 + row] + acc[1][i / 2][i % 2 * 2 + row];
      push(&memory.sums[rank][warp * (kExpertsPerWarp / 4) + g], &memory.summed, 2 * t + row,
           make_float4(v[0], v[1], v[2], v[3]));
    }
  }

  // The norms' factors, and the gate, from the sums of all blocks: the first eight lanes for row first + warp, the next
  // for row first + rank.
  __device__ void take_moments() {
    float2 m = memory.moments[lane % kTeam][lane < kTeam ? warp : rank];
#pragma unroll
    for (int d = kTeam / 2; d > 0; d /= 2) {
      m.x += __shfl_xor_sync(kAll, m.x, d);
      m.y += __shfl_xor_sync(kAll, m.y, d);
    }
    const float factor = normed() ? rsqrtf(m.x / static_cast<float>(f.p.m.hidden) + f.norm.eps) : 1.0f;
    scale = __shfl_sync(kAll, factor, 0);
    own_scale = __shfl_sync(kAll, factor, kTeam);
    own_gate = __shfl_sync(kAll, m.y, kTeam) * own_scale;
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

  // The choice of row first + rank, which the team learns the places of; whether it was the last of all rows.
  __device__ bool choose_row() {
    const uint32_t row = first + rank;
    const auto* sums = reinterpret_cast<const float*>(memory.sums);
    float logit = 0;
#pragma unroll
    for (uint32_t b = 0; b < kTeam; ++b) logit += sums[b * kRoutedExperts + threadIdx.x];
    choose(logit * own_scale, threadIdx.x < f.p.m.experts, f.p.m.top_k, memory.chosen);
    if (warp != 0) return false;
    const bool there = row < rows;
    const uint32_t slots = f.p.slots(), expert = min(memory.chosen.ids[lane % kMostChosen], f.p.m.experts - 1);
    uint32_t place = 0;
    if (there && lane < f.p.m.top_k) place = expert * f.p.room * 8 + atomicAdd(f.p.counts + expert, 1u);
    release_writes();
    __syncwarp();
    bool last = false;
    if (lane == 0 && (there || row == 0)) last = atomicAdd(f.done, 1u) + 1 == max(rows, 1u);
    if (!there) return last;
    push_places(place);
    const float weight = memory.chosen.weight(f.p.m.top_k);
    if (lane < f.p.m.top_k) {
      f.p.places[row * slots + lane] = place;
      f.p.m.p[uint64_t{row} * f.p.m.top_k + lane] = weight;
    }
    if (lane == 0 && f.p.m.shared_width != 0) {
      f.p.places[row * slots + f.p.m.top_k] = shared_place() + rank;
      f.p.m.shared_p[row] = sigmoid(own_gate);
    }
    return last;
  }
  __device__ uint32_t shared_place() const { return f.p.m.experts * f.p.room * 8 + first; }
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
        const uint32_t to = k < f.p.m.top_k ? places[k] : shared_place() + row;
        const uint64_t panel = (uint64_t{span} * f.p.groups + to / 8) * kPanelBytes;
        *reinterpret_cast<uint4*>(f.p.x + panel + panel_piece_offset(to, piece)) = v;
      }
    }
  }

  // The tiles of all rows. Leaves the counts at zero.
  __device__ void list_experts() {
    release_writes();
    for (uint32_t e = threadIdx.x; e <= f.p.m.experts; e += kRouteThreads) {
      const bool routed = e < f.p.m.experts;
      memory.counts[e] = routed ? __ldcg(f.p.counts + e) : f.p.m.shared_width != 0 ? rows : 0;
      memory.begins[e] = e * f.p.room;
      if (routed) f.p.counts[e] = 0;
    }
    if (threadIdx.x == 0) *f.done = 0;
    if (threadIdx.x <= kMostTileGroups) memory.sizes[threadIdx.x] = 0;
    __syncthreads();
    put_tiles(f.p, memory.counts, memory.begins, memory.sizes);
  }
};

#endif  // SWY_HOPPER

// kTeam blocks per eight rows. kSpans: of the width in each block.
template <int kSpans>
__global__ void __launch_bounds__(kRouteThreads) route_few(const __grid_constant__ RouteFew f, const swy_step* step) {
#ifdef SWY_HOPPER
  __shared__ RouteMemory<kSpans> memory;
  Router<kSpans> r(f, memory, step_rows(step, f.p.m.domain));
  r.load_weights();
  if (threadIdx.x == 0) r.begin_barriers();
  __syncthreads();
  cluster_meet();  // all blocks of the team have begun, and can be pushed to
  depend();
  release_next();
  if (r.first >= r.rows && r.first != 0) return;
  r.load_row();
  r.put_terms();
  __syncthreads();
  r.multiply_and_push();
  barrier_wait(&memory.summed, 0);
  r.take_moments();
  const bool last = r.choose_row();
  r.put_pieces();
  __syncthreads();
  barrier_wait(&memory.placed, 0);
  r.copy_rows();
  if (threadIdx.x == 0) memory.last = last;
  __syncthreads();
  if (memory.last) r.list_experts();
#endif
}

}  // namespace gpu
