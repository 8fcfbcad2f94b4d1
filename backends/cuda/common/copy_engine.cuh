// SPDX-License-Identifier: Apache-2.0
// Hopper's barriers in shared memory and its copy engine. PTX ISA, sections on mbarrier and cp.async.bulk. 32-bit
// addresses are those of shared memory. Compiled for older devices than 9.0, only shared_at is defined.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace gpu {

[[maybe_unused]] __device__ inline uint32_t shared_at(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// ---- barriers

__device__ inline void barrier_init(uint32_t at, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(arrivals));
}
// Makes newly initialised barriers visible to the copy engine.
__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void barrier_arrive(uint32_t at) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(at) : "memory");
}
__device__ inline void barrier_expect(uint32_t at, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
__device__ inline void barrier_wait(uint32_t at, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(at), "r"(parity)
                 : "memory");
  }
}

// ---- the copy engine

// Cache hint for the second-level cache: lines that are read once are evicted first.
__device__ inline uint64_t cache_policy(bool read_once) {
  uint64_t policy;
  if (read_once) {
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  } else {
    asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  }
  return policy;
}
// A box of a tensor, from column x (elements) and row y, to shared memory; counted by a barrier.
__device__ inline void copy_box(uint32_t to, const CUtensorMap& map, uint32_t x, uint32_t y, uint32_t barrier,
                                uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, "
      "%3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(barrier), "l"(policy)
      : "memory");
}
__device__ inline void copy_box(uint32_t to, const CUtensorMap& map, uint32_t x, uint32_t y, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          to),
      "l"(&map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
// A box of a tensor of three dimensions.
__device__ inline void copy_box(uint32_t to, const CUtensorMap& map, uint3 at, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(to),
      "l"(&map), "r"(at.x), "r"(at.y), "r"(at.z), "r"(barrier)
      : "memory");
}
__device__ inline void copy_box(uint32_t to, const CUtensorMap& map, uint3 at, uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, "
      "%4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(at.x), "r"(at.y), "r"(at.z), "r"(barrier), "l"(policy)
      : "memory");
}
__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// Brings a line of global memory to the second-level cache.
__device__ inline void prefetch_line(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p) : "memory"); }
__device__ inline void copy_in(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
// Makes ordinary stores to shared memory visible to the copy engine.
__device__ inline void stores_visible_to_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ inline void copy_out(void* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until the sources of this thread's copies to global memory may be overwritten; or until the copies are
// complete.
__device__ inline void copies_out_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ inline void copies_out_done() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

#else

// For functions that no kernel of an older device calls.
__device__ void barrier_init(uint32_t at, uint32_t arrivals);
__device__ void publish_barriers();
__device__ void barrier_expect(uint32_t at, uint32_t bytes);
__device__ void barrier_wait(uint32_t at, uint32_t parity);
__device__ void copy_box(uint32_t to, const CUtensorMap& map, uint32_t x, uint32_t y, uint32_t barrier);
__device__ void prefetch_map(const CUtensorMap& map);
__device__ void copy_in(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier);

#endif

}  // namespace gpu
