// SPDX-License-Identifier: Apache-2.0
// Clusters of blocks (compute capability 9.0): barriers in shared memory, and pushing data into the shared memory of
// other blocks. Compiled for older devices, these functions do nothing.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "copy_engine.cuh"

namespace gpu {

// ---- within a cluster

__device__ inline uint32_t cluster_rank() {
  uint32_t r = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
#endif
  return r;
}
// All threads of the cluster must call this. Orders only barriers that were initialised before, no other memory.
__device__ inline void cluster_meet() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// ---- barriers that open when a number of bytes has arrived

__device__ inline void barrier_begin(uint64_t* barrier, uint32_t arrivals) {
#if __CUDA_ARCH__ >= 900
  barrier_init(shared_at(barrier), arrivals);
#endif
}
__device__ inline void barriers_begun() {
#if __CUDA_ARCH__ >= 900
  publish_barriers();
#endif
}
__device__ inline void barrier_arrive(uint64_t* barrier) {
#if __CUDA_ARCH__ >= 900
  barrier_arrive(shared_at(barrier));
#endif
}
__device__ inline void barrier_expect(uint64_t* barrier, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  barrier_expect(shared_at(barrier), bytes);
#endif
}
// Makes earlier writes of the cluster's other blocks visible.
__device__ inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
        : "=r"(done)
        : "r"(shared_at(barrier)), "r"(parity)
        : "memory");
  }
#endif
}
// The address of the same variable in another block's shared memory; and stores to it.
[[maybe_unused]] __device__ inline uint32_t at_peer(const void* mine, uint32_t rank) {
  uint32_t at = 0;
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_at(mine)), "r"(rank));
#endif
  return at;
}
[[maybe_unused]] __device__ inline void push(uint32_t to, uint32_t barrier, float4 v) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier)
      : "memory");
#endif
}
[[maybe_unused]] __device__ inline void push(uint32_t to, uint32_t barrier, float2 v) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
               "f"(v.x), "f"(v.y), "r"(barrier)
               : "memory");
#endif
}
__device__ inline void push(const float4* mine, const uint64_t* barrier, uint32_t rank, float4 v) {
  push(at_peer(mine, rank), at_peer(barrier, rank), v);
}
__device__ inline void push(const float2* mine, const uint64_t* barrier, uint32_t rank, float2 v) {
  push(at_peer(mine, rank), at_peer(barrier, rank), v);
}

}  // namespace gpu
