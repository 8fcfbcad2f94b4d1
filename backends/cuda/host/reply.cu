// SPDX-License-Identifier: Apache-2.0
#include "reply.h"

#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

constexpr uint32_t kThreads = 256, kMostThreads = 1024;
constexpr uint64_t kMostBytes = 65536;

// Words are of 4 bytes, or of 16. The timeline is raised last. A host that reads its value also sees the words: the
// barrier orders those of all threads before the store, which releases them to the whole system.
template <class Word>
__global__ void __launch_bounds__(kMostThreads)
    reply_words(Word* to, const Word* from, uint32_t words, uint64_t* timeline, uint64_t value) {
  for (uint32_t i = threadIdx.x; i < words; i += blockDim.x) to[i] = from[i];
  __syncthreads();
  if (threadIdx.x == 0) asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(timeline), "l"(value) : "memory");
}

}  // namespace

// The split of cache and shared memory is that of steps of few rows: a multiprocessor takes long to change it.
swy_status prepare_replies(swy_error* error) {
  for (const void* kernel :
       {reinterpret_cast<const void*>(reply_words<uint32_t>), reinterpret_cast<const void*>(reply_words<uint4>)}) {
    const cudaError_t e =
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    if (e != cudaSuccess) return check(e, "dividing cache and shared memory", error);
  }
  return SWY_OK;
}

bool can_reply(const void* from, uint64_t bytes) {
  return bytes != 0 && bytes <= kMostBytes && bytes % 4 == 0 && reinterpret_cast<uintptr_t>(from) % 4 == 0;
}

swy_status reply(swy_device& device, void* page_locked, const void* from, uint64_t bytes, swy_timeline& timeline,
                 uint64_t value, swy_error* error) {
  timeline.signalled.store(value, std::memory_order_relaxed);
  auto* const raised = reinterpret_cast<uint64_t*>(timeline.value);
  const auto count = static_cast<uint32_t>(bytes / 4);
  const auto words = reply_words<uint32_t>;
  const auto quads = reply_words<uint4>;
  if (count > kThreads && count % 4 == 0 && reinterpret_cast<uintptr_t>(from) % sizeof(uint4) == 0) {
    quads<<<1, kMostThreads, 0, device.stream>>>(static_cast<uint4*>(page_locked), static_cast<const uint4*>(from),
                                                 count / 4, raised, value);
  } else {
    words<<<1, kThreads, 0, device.stream>>>(static_cast<uint32_t*>(page_locked), static_cast<const uint32_t*>(from),
                                             count, raised, value);
  }
  const swy_status s = check(cudaGetLastError(), "copying from the device", error);
  if (s != SWY_OK) timeline.value->store(SWY_TIMELINE_FAILED, std::memory_order_release);
  return s;
}

}  // namespace gpu
