// SPDX-License-Identifier: Apache-2.0
#include "staging.h"

#include <thread>
#include <utility>

#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

swy_status make_commands(swy_device& d, Staging& s, swy_error* error) {
  const VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr,
                                     VK_COMMAND_POOL_CREATE_TRANSIENT_BIT, d.features.queue_family};
  SWY_VK_TRY(check(d, d.vk.CreateCommandPool(d.handle, &pool, nullptr, &s.pool), "making a command pool", error));
  const VkCommandBufferAllocateInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, s.pool,
                                         VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
  return check(d, d.vk.AllocateCommandBuffers(d.handle, &info, &s.commands), "making a command buffer", error);
}

// The next staging memory that is not held; null if all are held.
template <size_t n>
Staging* next_of(std::array<Staging, n>& ring, uint32_t& next) {
  for (size_t i = 0; i < n; ++i) {
    Staging& s = ring[next];
    next = (next + 1) % n;
    if (!s.busy.exchange(true, std::memory_order_acquire)) return &s;
  }
  return nullptr;
}

// Its copy completes without further calls, at `done`.
swy_status reserve(swy_device& d, uint64_t bytes, Staging*& out, uint64_t& done, swy_error* error) {
  for (;;) {
    {
      const std::lock_guard lock(d.mutex);
      StagingRing& r = d.staging;
      out = bytes <= StagingRing::kSmall ? next_of(r.small, r.next_small) : next_of(r.large, r.next_large);
      if (out != nullptr) {
        done = out->done;
        return done > d.submitted ? flush(d, error) : SWY_OK;
      }
    }
    std::this_thread::yield();  // more threads than stagings; only `read` holds several, and one thread reads at a time
  }
}

swy_status begin(swy_device& d, Staging& s, swy_error* error) {
  SWY_VK_TRY(check(d, d.vk.ResetCommandPool(d.handle, s.pool, 0), "beginning a copy", error));
  const VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr,
                                       VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT, nullptr};
  SWY_VK_TRY(check(d, d.vk.BeginCommandBuffer(s.commands, &begin), "beginning a copy", error));
  full_barrier(d.vk, s.commands);
  return SWY_OK;
}

}  // namespace

swy_status take(swy_device& d, uint64_t bytes, Held& out, swy_error* error) {
  uint64_t done = 0;
  SWY_VK_TRY(reserve(d, bytes, out.staging_, done, error));
  Staging& s = *out;
  SWY_VK_TRY(wait_reached(d, done, UINT64_MAX, error));
  {
    const std::lock_guard lock(d.mutex);
    if (s.to != nullptr) hand_over(d, s);
  }
  return begin(d, s, error);
}

swy_status put(swy_device& d, Staging& s, swy_error* error) {
  full_barrier(d.vk, s.commands);
  SWY_VK_TRY(check(d, d.vk.EndCommandBuffer(s.commands), "ending a copy", error));
  s.done = d.submitted + 1;
  return enqueue(d, s.commands, error);
}

swy_status make_staging(swy_device& d, swy_error* error) {
  StagingRing& r = d.staging;
  const uint64_t bytes = r.small.size() * StagingRing::kSmall + r.large.size() * StagingRing::kLarge;
  SWY_VK_TRY(make_block(d, Memory::kStaging, bytes, r.block, error));
  uint64_t at = 0;
  swy_status status = SWY_OK;
  const auto make = [&](Staging& s, uint64_t size) {
    s.block = r.block.get();
    s.offset = std::exchange(at, at + size);
    if (status == SWY_OK) status = make_commands(d, s, error);
  };
  for (Staging& s : r.large) make(s, StagingRing::kLarge);
  for (Staging& s : r.small) make(s, StagingRing::kSmall);
  return status;
}

void free_staging(swy_device& d) {
  d.staging.for_each([&](Staging& s) {
    if (s.pool != VK_NULL_HANDLE) d.vk.DestroyCommandPool(d.handle, s.pool, nullptr);
  });
  d.staging.block.reset();
}

}  // namespace gpu
