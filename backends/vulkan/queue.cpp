// SPDX-License-Identifier: Apache-2.0
// The queue: command buffers in order, and the progress of their execution.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "device.h"
#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void full_barrier(const DeviceApi& vk, VkCommandBuffer commands) {
  const VkMemoryBarrier all{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, VK_ACCESS_MEMORY_WRITE_BIT,
                            VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT};
  vk.CmdPipelineBarrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
                        VK_PIPELINE_STAGE_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &all, 0, nullptr, 0,
                        nullptr);
}

uint64_t progress_of_all(const swy_device& locked) { return locked.submitted + (locked.pending_count != 0 ? 1 : 0); }

uint64_t progress_now(swy_device& device) {
  uint64_t value = 0;
  if (check(device, device.vk.GetSemaphoreCounterValue(device.handle, device.progress, &value), "", nullptr) !=
      SWY_OK) {
    return 0;
  }
  return value;
}

swy_status flush(swy_device& locked, swy_error* error) {
  if (locked.pending_count == 0) return SWY_OK;
  if (is_lost(locked)) return lost_earlier(locked, error);
  const uint64_t value = locked.submitted + 1;
  VkTimelineSemaphoreSubmitInfo values{VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO};
  values.signalSemaphoreValueCount = 1;
  values.pSignalSemaphoreValues = &value;
  VkSubmitInfo info{VK_STRUCTURE_TYPE_SUBMIT_INFO, &values};
  info.commandBufferCount = locked.pending_count;
  info.pCommandBuffers = locked.pending.data();
  info.signalSemaphoreCount = 1;
  info.pSignalSemaphores = &locked.progress;
  const VkResult submitted = locked.vk.QueueSubmit(locked.queue, 1, &info, VK_NULL_HANDLE);
  locked.pending_count = 0;
  const swy_status s = check(locked, submitted, "submitting to the queue", error);
  if (s != SWY_OK) {
    lose(locked, submitted);  // that progress will never be reached: nothing may wait for it
    return s;
  }
  locked.submitted = value;
  return SWY_OK;
}

// Submitted work continues even if a later submission or a wait fails: only the driver knows when it ends.
void drain(swy_device& device) {
  if (settle(device, nullptr) == SWY_OK) return;
  const std::lock_guard lock(device.mutex);
  device.vk.DeviceWaitIdle(device.handle);
}

swy_status settle(swy_device& device, swy_error* error) {
  uint64_t all = 0;
  {
    const std::lock_guard lock(device.mutex);
    SWY_VK_TRY(flush(device, error));
    all = device.submitted;
  }
  return wait_reached(device, all, UINT64_MAX, error);
}

swy_status enqueue(swy_device& locked, VkCommandBuffer commands, swy_error* error) {
  if (is_lost(locked)) return lost_earlier(locked, error);
  locked.pending[locked.pending_count++] = commands;
  return locked.pending_count == locked.pending.size() ? flush(locked, error) : SWY_OK;
}

// Spins on a GPU, where a token takes a millisecond and waking a thread takes a good part of that.
swy_status wait_reached(swy_device& device, uint64_t progress, uint64_t timeout_ns, swy_error* error) {
  const auto begin = Clock::now();
  const VkSemaphoreWaitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, nullptr, 0, 1, &device.progress, &progress};
  for (;;) {
    if (is_lost(device)) return lost_earlier(device, error);
    uint64_t now = 0;
    SWY_VK_TRY(check(device, device.vk.GetSemaphoreCounterValue(device.handle, device.progress, &now),
                     "waiting for the device", error));
    if (now >= progress) return SWY_OK;
    const auto waited =
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count());
    if (waited >= timeout_ns) {
      return swy::fail(error, SWY_CANCELLED, SWY_REASON_NONE, "the device did not come so far in time");
    }
    if (!device.features.cpu && waited < 5'000'000) continue;
    const VkResult r =
        device.vk.WaitSemaphores(device.handle, &info, std::min<uint64_t>(timeout_ns - waited, 20'000'000));
    SWY_VK_TRY(check(device, r, "waiting for the device", error));
  }
}

swy_status wait_for(swy_device& device, uint64_t progress, uint64_t timeout_ns, swy_error* error) {
  {
    const std::lock_guard lock(device.mutex);
    if (progress > device.submitted) SWY_VK_TRY(flush(device, error));
  }
  return wait_reached(device, progress, timeout_ns, error);
}

void deliver(swy_device& device) {
  const std::lock_guard lock(device.mutex);
  if (device.staging.arrivals == 0) return;
  const uint64_t reached = progress_now(device);
  device.staging.for_each([&](Staging& s) {
    if (s.to != nullptr && s.done <= reached) hand_over(device, s);
  });
}

void hand_over(swy_device& locked, Staging& s) {
  std::memcpy(s.to, s.mapped(), s.bytes);
  s.to = nullptr;
  --locked.staging.arrivals;
}

}  // namespace gpu
