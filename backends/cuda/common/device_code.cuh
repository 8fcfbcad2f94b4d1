// SPDX-License-Identifier: Apache-2.0
// Device code that all kernels of this backend share: ordering between kernels, reductions, the step, elements of
// weights.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "host/operands.h"
#include "stamps.cuh"
#include "switchyard/step.h"

namespace gpu {

// ---- ordering between kernels of a list

// Waits for everything that earlier kernels wrote. Every block with work calls this, and at least one block of each
// kernel does. Otherwise a later kernel could pass while an earlier one still runs.
__device__ inline void depend() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next kernel begin to prepare (load weights) while this one runs.
__device__ inline void release_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// ---- memory

// Loads 16 bytes of a weight, which is read once.
__device__ inline uint4 load_piece(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// Whether this thread is the last of `comers` to call this. All that the others wrote before, and all that threads
// wrote that met them at a barrier before, is then visible to this thread and to those that it meets afterwards. The
// counter is left at zero.
__device__ inline bool comes_last(uint32_t* counter, uint32_t comers) {
  __threadfence();
  const bool last = atomicAdd(counter, 1u) + 1 == comers;
  if (last) *counter = 0;
  __threadfence();
  return last;
}
// The same for blocks; all threads of the block must call this.
__device__ inline bool last_of(uint32_t* counter, uint32_t blocks) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) last = comes_last(counter, blocks);
  __syncthreads();
  return last;
}

// Joins `threads` threads of a block; id 0 is __syncthreads.
__device__ inline void named_barrier(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- reductions

constexpr unsigned kAll = 0xffffffffu;

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(kAll, x, d);
  return x;
}
__device__ inline float warp_max(float x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, d));
  return x;
}
// Over a block of whole warps; every thread gets the sum. `scratch`: 32 floats of shared memory.
__device__ inline float block_sum(float x, float* scratch) {
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0;
  for (uint32_t w = 0; w < blockDim.x / 32; ++w) sum += scratch[w];
  __syncthreads();
  return sum;
}

// ---- functions

// Of a power of two from 2^-126 to 2^126.
__device__ inline float inverse_of_power(float x) { return __uint_as_float((254u << 23) - __float_as_uint(x)); }
__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline float silu(float x) { return x / (1.0f + expf(-x)); }
// 2^x, the hardware's own.
__device__ inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// 1 / x and x sigmoid(x), the hardware's own.
__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float quick_silu(float x) { return x * reciprocal(1.0f + exp2_of(x * -1.44269504f)); }
// With the hardware's own exponential and division, for results that become bf16 or 12-bit operands.
__device__ inline float fast_silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

// act(gate, up) of ops.h.
__device__ inline float activated(const Activation& a, float gate, float up) {
  if (!a.clamped) return silu(gate) * up;
  const float g = fminf(gate, a.limit), u = fminf(fmaxf(up, -a.limit), a.limit);
  return g * sigmoid(a.alpha * g) * (u + 1);
}

// ---- the step

template <class T>
__device__ inline const T* step_array(const swy_step* step, uint32_t at) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(step) + at);
}
__device__ inline uint32_t step_rows(const swy_step* step, swy_rows domain) {
  return domain == SWY_ROWS_LOGITS ? step->logit_rows : domain == SWY_ROWS_SAMPLE ? step->sample_rows : step->rows;
}

// The row of a table for a token of the step: a token id, or an entry of the device's token buffer (step.h). Ids
// outside the table get its first or last row.
__device__ inline uint32_t entry_of(int32_t token, const int32_t* tokens, const Weight& table) {
  if (token < 0) token = __ldcg(tokens - 1 - token);
  return min(static_cast<uint32_t>(max(token, 0)), table.rows - 1);
}

// ---- elements of weights

__device__ inline float half_bits(uint16_t h) { return __half2float(__ushort_as_half(h)); }
__device__ inline float bf16_bits(uint32_t h) { return __uint_as_float(h << 16); }

// The bits in memory, for elements that are loaded early: a conversion would wait for them and hold up later loads.
__device__ inline uint32_t plain_bits_at(const Weight& w, uint64_t i) {
  return w.dtype == SWY_F32 ? reinterpret_cast<const uint32_t*>(w.data)[i]
                            : reinterpret_cast<const uint16_t*>(w.data)[i];
}
__device__ inline float plain_of(const Weight& w, uint32_t bits) {
  return w.dtype == SWY_F32 ? __uint_as_float(bits) : bf16_bits(bits);
}
__device__ inline float plain_at(const Weight& w, uint64_t i) {
  return w.dtype == SWY_F32 ? reinterpret_cast<const float*>(w.data)[i]
                            : bf16_bits(reinterpret_cast<const uint16_t*>(w.data)[i]);
}

__device__ inline float bias_at(const Bias& b, uint64_t i) {
  if (b.data == nullptr) return 0;
  return b.dtype == SWY_F32 ? static_cast<const float*>(b.data)[i] : bf16_bits(static_cast<const uint16_t*>(b.data)[i]);
}

// 2^(e - 127), the scale of a byte of MXFP4; 255 is no number.
__device__ inline float power_of(uint32_t e) {
  return __uint_as_float(e == 255 ? 0x7fc00000u : e == 0 ? 0x00400000u : e << 23);
}
// An element of MXFP4 before its scale: a sign, 2 bits of exponent, 1 of fraction.
__device__ inline float number_of(uint32_t q) {
  const float size = static_cast<float>((0xc8643210u >> (4 * (q & 7))) & 15) * 0.5f;
  return (q & 8) != 0 ? -size : size;
}

// One element, for shapes that cannot be read in 16-byte pieces.
__device__ inline float weight_at(const Weight& w, uint64_t row, uint32_t k) {
  const uint8_t* data = w.data + row * w.row_bytes;
  if (w.dtype == SWY_F32) return reinterpret_cast<const float*>(data)[k];
  if (w.dtype == SWY_BF16) return bf16_bits(reinterpret_cast<const uint16_t*>(data)[k]);
  const uint32_t g = k / w.group, i = k % w.group;
  const uint64_t at = row * w.groups + g;
  if (w.dtype == SWY_I8)
    return static_cast<float>(static_cast<int8_t>(data[g * w.group + i])) * half_bits(w.scales[at]);
  const uint32_t q = (data[g * ((w.group + 1) / 2) + i / 2] >> (4 * (i & 1))) & 15;
  if (w.dtype == SWY_MXFP4) return number_of(q) * power_of(reinterpret_cast<const uint8_t*>(w.scales)[at]);
  const float scale = half_bits(w.scales[at]);
  if (w.dtype == SWY_I4) return (static_cast<float>(q) - 8) * scale;
  return static_cast<float>(q) * scale + half_bits(w.offsets[at]);
}

}  // namespace gpu
