// SPDX-License-Identifier: Apache-2.0
// The last kernel of MOE for many rows: adds up the experts' results of a row. Since its block has the whole
// row, it can also make the next projection's operand. moe_combine_few.cuh does the same for few rows.
#pragma once

#include "common/stamps.cuh"
#include "grouped/byte_rows.cuh"
#include "moe_grouped.cuh"

namespace gpu {

// sum += factor * eight bf16.
__device__ inline void add_eight(float factor, uint4 v, float (&sum)[8]) {
  const uint32_t word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    sum[2 * j] = fmaf(factor, __uint_as_float(word[j] << 16), sum[2 * j]);
    sum[2 * j + 1] = fmaf(factor, __uint_as_float(word[j] & 0xffff0000u), sum[2 * j + 1]);
  }
}

constexpr uint32_t kCombineThreads = 256;

// y = sum of p_e times the experts' results, in order of k. blockIdx.x: row; eight columns a thread at a time. keep(i,
// sum): gets the results of columns i to i + 7. Whether there is a row.
template <class Keep>
__device__ __forceinline__ bool combine_row(const GroupedMixture& p, const swy_step* step, Keep keep) {
  constexpr uint32_t kAtOnce = 9;  // loads that are under way together
  __shared__ uint32_t from[kMostSlots];
  __shared__ float factors[kMostSlots];
  Stamps stamps(kStampCombine);
  const uint32_t row = blockIdx.x, stride = blockDim.x * 8;
  const bool there = row < step_rows(step, p.m.domain);
  const uint32_t slots = p.slots(), first = threadIdx.x * 8;
  // The previous kernel waited for everything older than its own results.
  if (there && threadIdx.x < slots) {
    const bool routed = threadIdx.x < p.m.top_k;
    from[threadIdx.x] = __ldcg(p.places + row * slots + threadIdx.x);
    factors[threadIdx.x] = __ldcg(routed ? p.m.p + uint64_t{row} * p.m.top_k + threadIdx.x : p.m.shared_p + row);
  }
  float old[8] = {};
  const auto load_residual = [&](uint32_t i) {
    if (p.m.residual == nullptr || i >= p.m.hidden) return;
    const auto* at = reinterpret_cast<const float4*>(p.m.residual + uint64_t{row} * p.m.hidden + i);
    const float4 a = __ldcg(at), b = __ldcg(at + 1);
    old[0] = a.x, old[1] = a.y, old[2] = a.z, old[3] = a.w, old[4] = b.x, old[5] = b.y, old[6] = b.z, old[7] = b.w;
  };
  if (there) load_residual(first);
  __syncthreads();
  release_next();  // the next kernel requests its weights beside the experts' last tiles
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  if (!there) return false;
  for (uint32_t i = first; i < p.m.hidden; i += stride) {
    if (i != first) load_residual(i);
    float sum[8] = {};
    for (uint32_t k = 0; k < slots; k += kAtOnce) {
      uint4 v[kAtOnce];
#pragma unroll
      for (uint32_t j = 0; j < kAtOnce; ++j) {
        v[j] = k + j < slots ? __ldcg(reinterpret_cast<const uint4*>(p.pairs + uint64_t{from[k + j]} * p.m.hidden + i))
                             : make_uint4(0, 0, 0, 0);
      }
#pragma unroll
      for (uint32_t j = 0; j < kAtOnce; ++j) add_eight(k + j < slots ? factors[k + j] : 0.0f, v[j], sum);
    }
    const uint64_t at = uint64_t{row} * p.m.hidden + i;
#pragma unroll
    for (int j = 0; j < 8; ++j) sum[j] += old[j];
    keep(i, sum);
    *reinterpret_cast<float4*>(p.m.y + at) = make_float4(sum[0], sum[1], sum[2], sum[3]);
    *reinterpret_cast<float4*>(p.m.y + at + 4) = make_float4(sum[4], sum[5], sum[6], sum[7]);
  }
  return true;
}

static __global__ void __launch_bounds__(kCombineThreads)
    combine_grouped(const __grid_constant__ GroupedMixture p, const swy_step* step) {
  combine_row(p, step, [](uint32_t, const float(&)[8]) {});
}

constexpr uint32_t kMostToBytes = 4096;  // columns

// Also the bytes of the norm of y, by way of shared memory: `hidden` floats.
static __global__ void __launch_bounds__(kCombineThreads)
    combine_to_bytes(const __grid_constant__ GroupedMixture p, const __grid_constant__ NormedBytes next,
                     const swy_step* step) {
  constexpr uint32_t kWarps = kCombineThreads / 32;
  extern __shared__ float4 row_of_sums[];
  __shared__ RowMemory<kWarps> memory;
  const bool there = combine_row(p, step, [&](uint32_t i, const float(&sum)[8]) {
    row_of_sums[i / 4] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    row_of_sums[i / 4 + 1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
  });
  if (!there) return;
  __syncthreads();
  InputRow<NormOfBytes> of{{next.rows, blockIdx.x}, next.norm, reinterpret_cast<const float*>(row_of_sums), p.m.hidden};
  convert_row<2>(of, memory);
}

}  // namespace gpu
