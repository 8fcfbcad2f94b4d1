// SPDX-License-Identifier: Apache-2.0
// Timelines: numbers on the host that correspond to the progress of the device's queue.
#include <chrono>
#include <memory>
#include <thread>

#include "device.h"
#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

using Clock = std::chrono::steady_clock;

// Drops the marks that were reached. The caller holds the timeline's mutex.
void advance(swy_timeline& t, uint64_t progress) {
  while (t.count != 0 && t.marks[t.first].progress <= progress) {
    t.reached = t.marks[t.first].value;
    t.first = (t.first + 1) % t.marks.size();
    --t.count;
  }
}

swy_status raise(swy_timeline& t, uint64_t value, uint64_t progress, swy_error* error) {
  const std::lock_guard lock(t.mutex);
  if (t.count == t.marks.size()) {
    const uint64_t oldest = t.marks[t.first].progress;
    SWY_VK_TRY(wait_for(*t.device, oldest, UINT64_MAX, error));
    advance(t, oldest);
  }
  t.marks[(t.first + t.count++) % t.marks.size()] = {value, progress};
  return SWY_OK;
}

// The progress of a value; 0: it was reached; UINT64_MAX: it has not been requested yet.
uint64_t promised(swy_timeline& t, uint64_t value) {
  const std::lock_guard lock(t.mutex);
  if (t.reached >= value) return 0;
  for (uint32_t i = 0; i < t.count; ++i) {
    const swy_timeline::Mark& mark = t.marks[(t.first + i) % t.marks.size()];
    if (mark.value >= value) return mark.progress;
  }
  return UINT64_MAX;
}

}  // namespace

swy_status await_points(const swy_device& device, const swy_submit* submit, swy_error* error) {
  for (uint32_t i = 0; submit != nullptr && i < submit->wait_count; ++i) {
    const swy_timeline_point& point = submit->waits[i];
    if (point.timeline->device == &device) continue;
    SWY_VK_TRY(timeline_wait(point.timeline, point.value, UINT64_MAX, error));
  }
  return SWY_OK;
}

swy_status signal_at(const swy_submit* submit, uint64_t progress, swy_error* error) {
  for (uint32_t i = 0; submit != nullptr && i < submit->signal_count; ++i) {
    SWY_VK_TRY(raise(*submit->signals[i].timeline, submit->signals[i].value, progress, error));
  }
  return SWY_OK;
}

swy_status timeline_create(swy_device* device, swy_timeline** out, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    auto t = std::make_unique<swy_timeline>();
    t->device = device;
    *out = t.release();
    return SWY_OK;
  });
}

void timeline_free(swy_device* device, swy_timeline* timeline) {
  {
    const std::lock_guard lock(device->mutex);
    device->staging.for_each([&](Staging& s) {
      if (s.to == nullptr || s.timeline != timeline) return;
      s.to = nullptr;  // it will not be requested any more
      --device->staging.arrivals;
    });
  }
  delete timeline;
}

uint64_t timeline_value(swy_timeline* timeline) {
  swy_device& device = *timeline->device;
  {
    const std::lock_guard lock(device.mutex);
    flush(device, nullptr);
  }
  const uint64_t progress = progress_now(device);
  if (is_lost(device)) return SWY_TIMELINE_FAILED;
  deliver(device);
  const std::lock_guard lock(timeline->mutex);
  advance(*timeline, progress);
  return timeline->reached;
}

swy_status timeline_wait(swy_timeline* timeline, uint64_t value, uint64_t timeout_ns, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    swy_device& device = *timeline->device;
    const auto begin = Clock::now();
    for (;;) {
      const uint64_t progress = promised(*timeline, value);
      const auto waited =
          static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count());
      if (progress != UINT64_MAX) {
        const uint64_t left = timeout_ns > waited ? timeout_ns - waited : 0;
        SWY_VK_TRY(wait_for(device, progress, left, error));
        deliver(device);
        const std::lock_guard lock(timeline->mutex);
        advance(*timeline, progress);
        return SWY_OK;
      }
      if (is_lost(device)) return lost_earlier(device, error);
      if (waited >= timeout_ns) {
        return swy::fail(error, SWY_CANCELLED, SWY_REASON_NONE, "value %llu was not reached in time",
                         static_cast<unsigned long long>(value));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
}

}  // namespace gpu
