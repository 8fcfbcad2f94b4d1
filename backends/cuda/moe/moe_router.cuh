// SPDX-License-Identifier: Apache-2.0
// The router of few rows up to its choice (moe_route.cuh).
//
// A cluster of eight blocks has eight rows. Each block multiplies its eighth of the width with all experts, whose
// weights it loads into registers before the rows are ready: bf16 times two bf16 terms on tensor cores, as in
// narrow.cuh. Sums go to the block that chooses for their row.
#pragma once

#include "choice.cuh"
#include "common/clusters.cuh"
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
  static constexpr uint32_t kWidth = kSpans * kSpan;
  float4 sums[kTeam][kRoutedExperts / 4];  // [block] of this block's row
  float2 moments[kTeam][kTeam];            // [block][row] squares, and the shared expert's gate
  uint4 terms[kWidth / 32][68];  // rows in two terms: for each 32 columns the first operands of two steps; 4 part banks
  Chosen chosen;
  uint64_t summed, squared;
};

// Four neighbouring elements of a row of f32 or bf16.
__device__ inline void load_four(const Weight& w, uint32_t i, bool there, float* to) {
  const bool wide = w.dtype == SWY_F32;
  const uint2 v = there && !wide ? __ldg(reinterpret_cast<const uint2*>(w.data) + i / 4) : make_uint2(0, 0);
  const float4 f = there && wide ? __ldg(reinterpret_cast<const float4*>(w.data) + i / 4) : make_float4(0, 0, 0, 0);
  to[0] = wide ? f.x : __uint_as_float(v.x << 16), to[1] = wide ? f.y : __uint_as_float(v.x & 0xffff0000u);
  to[2] = wide ? f.z : __uint_as_float(v.y << 16), to[3] = wide ? f.w : __uint_as_float(v.y & 0xffff0000u);
}

// The steps of one block of a team, in this order. prepare() does what is possible before the wait.
template <int kSpans>
struct Router {
  using Memory = RouteMemory<kSpans>;
  static constexpr uint32_t kChunks = Memory::kWidth / 32, kEach = Memory::kWidth / 32;

  const RouteFew& f;
  Memory& memory;
  const uint32_t rank = cluster_rank(), first = blockIdx.x / kTeam * kTeam, rows;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, column0 = rank * Memory::kWidth;
  uint4 weights[4][kChunks];         // second operands: elements 8 t to 8 t + 7 of every 32 of expert_of_operand(j, g)
  float norm[kEach], mix[kEach];     // of this thread's columns: the norm's factors, and the shared expert's gate
  const float4* from;                // this thread's columns of row first + warp
  uint32_t to[3], barriers[2];       // where this thread pushes two sums and the moments to
  float x[kEach];                    // of that row: columns column0 + kEach lane + i
  float scale, own_scale, own_gate;  // of that row's norm; of row first + rank

  __device__ Router(const RouteFew& few, Memory& m, uint32_t of) : f(few), memory(m), rows(of) {}
  __device__ uint32_t chosen_rows() const { return min(rows > first ? rows - first : 0, kTeam); }
  __device__ bool normed() const { return f.norm.weight.data != nullptr; }

  // Column n of operands j: a thread's results of two operands have four neighbouring elements.
  __device__ uint32_t expert_of_operand(uint32_t j, uint32_t n) const {
    return warp * kExpertsPerWarp + j / 2 * 16 + n / 2 * 4 + j % 2 * 2 + n % 2;
  }

  // Loads what no kernel writes. All loads are in flight at once.
  __device__ void load_weights() {
    const uint32_t g = lane / 4, t = lane % 4, hidden = f.p.m.hidden;
    const auto* data = reinterpret_cast<const uint16_t*>(f.p.m.router.data);
#pragma unroll
    for (int j = 0; j < kSpans; ++j) {
      const uint32_t k = column0 + lane * kEach + 4 * j;
      load_four(f.norm.weight, k, k < hidden && normed(), norm + 4 * j);
      load_four(f.p.m.shared_mix, k, k < hidden && f.p.m.shared_width != 0, mix + 4 * j);
    }
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t e = expert_of_operand(j, g);
#pragma unroll
      for (uint32_t c = 0; c < kChunks; ++c) {
        const uint32_t k = column0 + c * 32 + t * 8;
        weights[j][c] = e < f.p.m.experts && k < hidden ? load_piece(data + uint64_t{e} * hidden + k) : uint4{};
      }
    }
  }

  // One thread calls this, before others can push.
  __device__ void begin_barriers() {
    barrier_begin(&memory.summed, 1);
    barrier_begin(&memory.squared, 1);
    barriers_begun();
    barrier_expect(&memory.summed, sizeof memory.sums);
    barrier_expect(&memory.squared, sizeof memory.moments);
  }

  // The last step before the wait.
  __device__ void prepare() {
    const uint32_t g = lane / 4, t = lane % 4, k = column0 + lane * kEach;
    // The width is a multiple of a thread's elements.
    const bool there = first + warp < rows && k < f.p.m.hidden;
    from = there ? reinterpret_cast<const float4*>(f.p.m.x + uint64_t{first + warp} * f.p.m.hidden + k) : nullptr;
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) to[i] = at_peer(&memory.sums[rank][warp * 8 + i * 4 + t], g);
    barriers[0] = at_peer(&memory.summed, g);
    to[2] = at_peer(&memory.moments[rank][warp], lane % kTeam);
    barriers[1] = at_peer(&memory.squared, lane % kTeam);
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) norm[i] = normed() ? f.norm.bias + norm[i] : 1.0f;
    asm volatile("" : "+l"(from));
    keep(to), keep(barriers), keep(norm), keep(mix);
  }

  __device__ void load_row() {
#pragma unroll
    for (int j = 0; j < kSpans; ++j) {
      const float4 v = from != nullptr ? __ldcg(from + j) : make_float4(0, 0, 0, 0);
      x[4 * j] = v.x, x[4 * j + 1] = v.y, x[4 * j + 2] = v.z, x[4 * j + 3] = v.w;
    }
  }

  // Writes both terms to shared memory. Returns this thread's squares and its part of the gate.
  __device__ float2 put_terms() {
    float2 sum = make_float2(0, 0);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      sum.x = fmaf(x[i], x[i], sum.x);
      x[i] *= norm[i];
      sum.y = fmaf(x[i], mix[i], sum.y);
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
      const uint32_t four = lane * kSpans + j;
      memory.terms[four / 8][four % 2 * 32 + warp * 4 + four % 8 / 2] = make_uint4(high[0], low[0], high[1], low[1]);
    }
    return sum;
  }
  // Sends this block's part of the squares and of the gate to all blocks.
  __device__ void push_moments(float2 sum) {
    asm volatile("" : "+f"(sum.x), "+f"(sum.y));  // not before the block's barrier
    const bool lower = lane < 16;
    float v = lower ? sum.x : sum.y;
    v += __shfl_xor_sync(kAll, lower ? sum.y : sum.x, 16);
#pragma unroll
    for (int d = 8; d > 0; d /= 2) v += __shfl_xor_sync(kAll, v, d);
    const float other = __shfl_xor_sync(kAll, v, 16);
    if (lane < kTeam) push(to[2], barriers[1], make_float2(v, other));
  }

  // Sends this block's sums of eight rows, each to the block that chooses for it.
  __device__ void multiply_and_push() {
    float acc[4][4] = {};  // [operand]: two experts of the high terms of row lane / 4, and of the low ones
#pragma unroll
    for (uint32_t c = 0; c < kChunks; ++c) {
#pragma unroll
      for (uint32_t step = 0; step < 2; ++step) {
        const uint4 v = memory.terms[c][step * 32 + lane];
        const uint32_t a[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (uint32_t j = 0; j < 4; ++j) {
          const uint4& b = weights[j][c];
          matrix_multiply(acc[j], a, step == 0 ? b.x : b.z, step == 0 ? b.y : b.w);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float(&v)[4] = acc[2 * i], (&w)[4] = acc[2 * i + 1];
      push(to[i], barriers[0], make_float4(v[0] + v[2], v[1] + v[3], w[0] + w[2], w[1] + w[3]));
    }
  }

  // The norms' factors, and the gate, from the sums of all blocks: the first eight lanes for row first + warp, the next
  // eight for row first + rank.
  __device__ void take_moments() {
    barrier_wait(&memory.squared, 0);
    float2 m = memory.moments[lane % kTeam][lane < kTeam ? warp : rank];
#pragma unroll
    for (int d = kTeam / 2; d > 0; d /= 2) {
      m.x += __shfl_xor_sync(kAll, m.x, d);
      m.y += __shfl_xor_sync(kAll, m.y, d);
    }
    const float factor = normed() ? rsqrtf(__fdividef(m.x, static_cast<float>(f.p.m.hidden)) + f.norm.eps) : 1.0f;
    scale = __shfl_sync(kAll, factor, 0);
    own_scale = __shfl_sync(kAll, factor, kTeam);
    own_gate = __shfl_sync(kAll, m.y, kTeam) * own_scale;
  }

  // The choice for row first + rank. The norm's factor does not change the order.
  __device__ void choose_row() {
    barrier_wait(&memory.summed, 0);
    const auto* sums = reinterpret_cast<const float*>(memory.sums);
    float logit = 0;
#pragma unroll
    for (uint32_t b = 0; b < kTeam; ++b) logit += sums[b * kRoutedExperts + threadIdx.x];
    choose(logit, threadIdx.x < f.p.m.experts, f.p.m.top_k, memory.chosen);
  }
  // The lane-th chosen expert.
  __device__ uint32_t chosen_expert() const { return min(memory.chosen.ids[lane % kMostChosen], f.p.m.experts - 1); }
  // For row first + rank: the first warp writes the place of copy `lane`, the second its weight, the third the gate.
  __device__ void put_choice(uint32_t place) {
    const uint32_t row = first + rank, top_k = f.p.m.top_k, slots = f.p.slots();
    if (warp == 0 && lane < slots) f.p.places[row * slots + lane] = lane < top_k ? place : shared_place() + rank;
    if (warp == 1) {
      const float weight = memory.chosen.weight(top_k, own_scale);
      if (lane < top_k) f.p.m.p[uint64_t{row} * top_k + lane] = weight;
    }
    if (warp == 2 && lane == 0 && f.p.m.shared_width != 0) f.p.m.shared_p[row] = sigmoid(own_gate);
  }
  __device__ uint32_t shared_place() const { return f.p.m.experts * f.p.room * 8 + first; }
};

#endif  // SWY_HOPPER

}  // namespace gpu
