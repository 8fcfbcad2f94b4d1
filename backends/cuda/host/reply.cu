// SPDX-License-Identifier: Apache-2.0
#include "reply.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "common/device_code.cuh"
#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

constexpr uint32_t kThreads = 256, kMostThreads = 1024;
constexpr uint64_t kMostBytes = 65536;

// These kernels let the next one begin at once. Only another of these can, and it waits before it does anything. A list
// begins when everything before it has ended, so its kernels may read the step before their own wait.

// Words are of 4 bytes, or of 16. The timeline is raised last. A host that reads its value also sees the words: the
// barrier orders those of all threads before the store, which releases them to the whole system.
template <class Word>
__global__ void __launch_bounds__(kMostThreads)
    reply_words(Word* to, const Word* from, uint32_t words, uint64_t* timeline, uint64_t value) {
  release_next();
  depend();
  for (uint32_t i = threadIdx.x; i < words; i += blockDim.x) to[i] = from[i];
  __syncthreads();
  if (threadIdx.x == 0) asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(timeline), "l"(value) : "memory");
}

template <uint32_t kCount>
struct Pieces {
  uint4 of[kCount];
};
template <uint32_t kCount>
__global__ void __launch_bounds__(kThreads)
    bring_pieces(uint4* to, const __grid_constant__ Pieces<kCount> pieces, uint32_t count) {
  release_next();
  depend();
  if (threadIdx.x < count) to[threadIdx.x] = pieces.of[threadIdx.x];
}

// Starts one block, which may begin before the previous kernel of the stream has ended.
template <class... Params, class... Args>
cudaError_t start(const swy_device& device, void (*kernel)(Params...), uint32_t threads, const Args&... args) {
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = 1, config.blockDim = threads, config.stream = device.stream;
  config.attrs = &dependent, config.numAttrs = device.features.dependent_launch ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

template <uint32_t kCount>
cudaError_t start_bring(const swy_device& device, void* to, const void* from, uint64_t bytes) {
  Pieces<kCount> pieces;
  std::memcpy(pieces.of, from, bytes);
  return start(device, bring_pieces<kCount>, kThreads, static_cast<uint4*>(to), pieces,
               static_cast<uint32_t>(bytes / sizeof(uint4)));
}

// The split of cache and shared memory is that of steps of few rows: a multiprocessor takes long to change it.
cudaError_t set_split(const void* kernel) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
}

// The kernels that bring pieces, the largest last: all parameters of a kernel take 4 KiB at most.
struct Bringer {
  uint32_t pieces;
  cudaError_t (*start)(const swy_device&, void*, const void*, uint64_t);
  cudaError_t (*prepare)();
};
template <uint32_t kCount>
constexpr Bringer bringer() {
  return {kCount, start_bring<kCount>, [] { return set_split(reinterpret_cast<const void*>(bring_pieces<kCount>)); }};
}
constexpr Bringer kBringers[] = {bringer<32>(), bringer<64>(), bringer<252>()};
constexpr uint64_t kMostAtOnce = std::rbegin(kBringers)->pieces * sizeof(uint4), kMostBrought = 4 * kMostAtOnce;

}  // namespace

swy_status prepare_small_copies(swy_error* error) {
  cudaError_t e = set_split(reinterpret_cast<const void*>(reply_words<uint32_t>));
  if (e == cudaSuccess) e = set_split(reinterpret_cast<const void*>(reply_words<uint4>));
  for (const Bringer& b : kBringers) {
    if (e == cudaSuccess) e = b.prepare();
  }
  return check(e, "dividing cache and shared memory", error);
}

bool can_bring(const void* to, uint64_t bytes) {
  return bytes != 0 && bytes <= kMostBrought && bytes % sizeof(uint4) == 0 &&
         reinterpret_cast<uintptr_t>(to) % sizeof(uint4) == 0;
}

swy_status bring(swy_device& device, void* to, const void* from, uint64_t bytes, swy_error* error) {
  cudaError_t e = cudaSuccess;
  for (uint64_t at = 0; at < bytes && e == cudaSuccess; at += kMostAtOnce) {
    const uint64_t part = std::min(bytes - at, kMostAtOnce);
    const Bringer* b = kBringers;
    while (b->pieces * sizeof(uint4) < part) ++b;
    e = b->start(device, static_cast<char*>(to) + at, static_cast<const char*>(from) + at, part);
  }
  return check(e, "copying to the device", error);
}

bool can_reply(const void* from, uint64_t bytes) {
  return bytes != 0 && bytes <= kMostBytes && bytes % 4 == 0 && reinterpret_cast<uintptr_t>(from) % 4 == 0;
}

swy_status reply(swy_device& device, void* page_locked, const void* from, uint64_t bytes, swy_timeline& timeline,
                 uint64_t value, swy_error* error) {
  timeline.signalled.store(value, std::memory_order_relaxed);
  auto* const raised = reinterpret_cast<uint64_t*>(timeline.value);
  const auto count = static_cast<uint32_t>(bytes / 4);
  cudaError_t e = cudaSuccess;
  if (count > kThreads && count % 4 == 0 && reinterpret_cast<uintptr_t>(from) % sizeof(uint4) == 0) {
    e = start(device, reply_words<uint4>, kMostThreads, static_cast<uint4*>(page_locked),
              static_cast<const uint4*>(from), count / 4, raised, value);
  } else {
    e = start(device, reply_words<uint32_t>, kThreads, static_cast<uint32_t*>(page_locked),
              static_cast<const uint32_t*>(from), count, raised, value);
  }
  const swy_status s = check(e, "copying from the device", error);
  if (s != SWY_OK) timeline.value->store(SWY_TIMELINE_FAILED, std::memory_order_release);
  return s;
}

}  // namespace gpu
