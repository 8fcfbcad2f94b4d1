// SPDX-License-Identifier: Apache-2.0
#include "reply.h"

#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint64_t kMostBytes = 4096;

// The timeline is raised last. A host that reads its value also sees the words: the barrier orders those of all threads
// before the store, which releases them to the whole system.
__global__ void __launch_bounds__(kThreads)
    reply_words(uint32_t* to, const uint32_t* from, uint32_t words, uint64_t* timeline, uint64_t value) {
  for (uint32_t i = threadIdx.x; i < words; i += kThreads) to[i] = from[i];
  __syncthreads();
  if (threadIdx.x == 0) asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(timeline), "l"(value) : "memory");
}

}  // namespace

// The split of cache and shared memory is that of steps of few rows: a multiprocessor takes long to change it.
swy_status prepare_replies(swy_error* error) {
  return check(cudaFuncSetAttribute(reinterpret_cast<const void*>(reply_words),
                                    cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
               "dividing cache and shared memory", error);
}

bool can_reply(const void* from, uint64_t bytes) {
  return bytes != 0 && bytes <= kMostBytes && bytes % 4 == 0 && reinterpret_cast<uintptr_t>(from) % 4 == 0;
}

swy_status reply(swy_device& device, void* page_locked, const void* from, uint64_t bytes, swy_timeline& timeline,
                 uint64_t value, swy_error* error) {
  timeline.signalled.store(value, std::memory_order_relaxed);
  reply_words<<<1, kThreads, 0, device.stream>>>(static_cast<uint32_t*>(page_locked),
                                                 static_cast<const uint32_t*>(from), static_cast<uint32_t>(bytes / 4),
                                                 reinterpret_cast<uint64_t*>(timeline.value), value);
  const swy_status s = check(cudaGetLastError(), "copying from the device", error);
  if (s != SWY_OK) timeline.value->store(SWY_TIMELINE_FAILED, std::memory_order_release);
  return s;
}

}  // namespace gpu
