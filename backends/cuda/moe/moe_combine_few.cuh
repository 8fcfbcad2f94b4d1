// SPDX-License-Identifier: Apache-2.0
// The last kernel of MOE for few rows, which moe_router.cuh routed: adds up the experts' results of a row.
//
// A block runs its code once, so most of its time is the latency of one load and the fetching of instructions. All
// addresses are ready before the wait, all loads are under way together, and a thread has only four columns.
#pragma once

#include "common/few_rows.cuh"
#include "common/pin.cuh"
#include "common/stamps.cuh"
#include "moe_grouped.cuh"

namespace gpu {

constexpr uint32_t kFewSlots = 9;  // chosen experts and the shared one, at most
constexpr uint32_t kCombineFewThreads = 512, kMostFewColumns = 4 * kCombineFewThreads;

// y = sum of p_e times the experts' results, in order of k. blockIdx.x: row. kNext: also the next projection's operand,
// of rows of whole slices.
template <bool kNext>
__global__ void __launch_bounds__(kCombineFewThreads)
    combine_few(const __grid_constant__ GroupedMixture p, const swy_step* step) {
  constexpr uint32_t kWarps = kCombineFewThreads / 32;
  __shared__ float squares[kWarps];
  Stamps stamps(kStampCombine);
  const Mixture& m = p.m;
  const uint32_t row = blockIdx.x, first = threadIdx.x * 4, slots = p.slots();
  const bool works = row < step_rows(step, m.domain) && first < m.hidden;
  const uint64_t at = uint64_t{row} * m.hidden + first;
  // The previous kernel waited for everything older than its own results.
  const uint16_t* from[kFewSlots] = {};
  float factors[kFewSlots] = {}, next_factors[4] = {};
  float4 residual = make_float4(0, 0, 0, 0);
  if (works) {
#pragma unroll
    for (uint32_t k = 0; k < kFewSlots; ++k) {
      const uint32_t slot = min(k, slots - 1);
      from[k] = p.pairs + uint64_t{__ldcg(p.places + row * slots + slot)} * m.hidden + first;
      const float factor = __ldcg(slot < m.top_k ? m.p + row * m.top_k + slot : m.shared_p + row);
      factors[k] = k < slots ? factor : 0.0f;
    }
    if (m.residual != nullptr) residual = __ldcg(reinterpret_cast<const float4*>(m.residual + at));
#pragma unroll
    for (int j = 0; kNext && j < 4; ++j) next_factors[j] = p.next.norm.bias + plain_at(p.next.norm.weight, first + j);
  }
  float per_width = 1.0f / static_cast<float>(m.hidden);
#pragma unroll
  for (uint32_t k = 0; k < kFewSlots; ++k) pin(from[k]), pin(factors[k]);
  pin(per_width);
  release_next();  // the next kernel requests its weights beside the experts' last tiles
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  float sum[4] = {};
  if (works) {
    uint2 v[kFewSlots];
#pragma unroll
    for (uint32_t k = 0; k < kFewSlots; ++k) v[k] = __ldcg(reinterpret_cast<const uint2*>(from[k]));
#pragma unroll
    for (uint32_t k = 0; k < kFewSlots; ++k) {
      const uint32_t word[2] = {v[k].x, v[k].y};
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        sum[2 * j] = fmaf(factors[k], __uint_as_float(word[j] << 16), sum[2 * j]);
        sum[2 * j + 1] = fmaf(factors[k], __uint_as_float(word[j] & 0xffff0000u), sum[2 * j + 1]);
      }
    }
    sum[0] += residual.x, sum[1] += residual.y, sum[2] += residual.z, sum[3] += residual.w;
    *reinterpret_cast<float4*>(m.y + at) = make_float4(sum[0], sum[1], sum[2], sum[3]);
  }
  if constexpr (kNext) {
    const float square = warp_sum(sum[0] * sum[0] + sum[1] * sum[1] + sum[2] * sum[2] + sum[3] * sum[3]);
    if (threadIdx.x % 32 == 0) squares[threadIdx.x / 32] = square;
    __syncthreads();
    if (!works) return;  // whole warps
    float total = 0;
#pragma unroll
    for (uint32_t i = 0; i < kWarps; ++i) total += squares[i];
    const float inverse = rsqrtf(fmaf(total, per_width, p.next.norm.eps));
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[j] *= next_factors[j] * inverse;
    put_few(p.next.rows, row, threadIdx.x, sum);
  }
}

}  // namespace gpu
