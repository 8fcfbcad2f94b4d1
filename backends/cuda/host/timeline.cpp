// SPDX-License-Identifier: Apache-2.0
// Timelines: a word of page-locked memory that the stream writes when all earlier work is done, without waking the
// host.
#include <cuda.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <thread>

#include "device.h"
#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

using Clock = std::chrono::steady_clock;

using WriteValue = CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned int);

// Found through the runtime, so that this library does not link the driver.
WriteValue write_value() {
  static const WriteValue fn = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult how{};
#if CUDART_VERSION >= 12050
    const cudaError_t e =
        cudaGetDriverEntryPointByVersion("cuStreamWriteValue64", &found, 12000, cudaEnableDefault, &how);
#else
    const cudaError_t e = cudaGetDriverEntryPoint("cuStreamWriteValue64", &found, cudaEnableDefault, &how);
#endif
    cudaGetLastError();
    const bool ok = e == cudaSuccess && how == cudaDriverEntryPointSuccess;
    return ok ? reinterpret_cast<WriteValue>(found) : nullptr;
  }();
  return fn;
}

// Delivers the copies that the timeline has announced. Locks the device.
void deliver(swy_timeline& t, uint64_t reached) {
  const std::lock_guard lock(t.device->mutex);
  auto& arrivals = t.device->arrivals;
  for (auto it = arrivals.begin(); it != arrivals.end();) {
    if (it->timeline != &t || it->value > reached) {
      ++it;
      continue;
    }
    std::memcpy(it->to, it->from->memory, it->bytes);
    it = arrivals.erase(it);
  }
}

// Marks a timeline as failed if its device can no longer raise it.
swy_status check_alive(swy_timeline& t, swy_error* error) {
  if (const swy_status s = use(*t.device, error); s != SWY_OK) return s;
  const cudaError_t e = cudaStreamQuery(t.device->stream);
  if (e == cudaSuccess || e == cudaErrorNotReady) {
    cudaGetLastError();
    return SWY_OK;
  }
  t.value->store(SWY_TIMELINE_FAILED, std::memory_order_release);
  return check(e, "running a step", error);
}

}  // namespace

bool timelines_available() { return write_value() != nullptr; }

swy_status await_points(const swy_device& device, const swy_submit* submit, swy_error* error) {
  for (uint32_t i = 0; submit != nullptr && i < submit->wait_count; ++i) {
    const swy_timeline_point& point = submit->waits[i];
    if (point.timeline->device == &device) continue;
    if (const swy_status s = timeline_wait(point.timeline, point.value, UINT64_MAX, error); s != SWY_OK) return s;
  }
  return SWY_OK;
}

swy_status signal(swy_device& device, const swy_submit* submit, swy_error* error) {
  for (uint32_t i = 0; submit != nullptr && i < submit->signal_count; ++i) {
    swy_timeline& t = *submit->signals[i].timeline;
    const uint64_t value = submit->signals[i].value;
    t.signalled.store(value, std::memory_order_relaxed);
    const CUresult r = write_value()(device.stream, reinterpret_cast<CUdeviceptr>(t.value), value, 0);
    if (r != CUDA_SUCCESS) {
      t.value->store(SWY_TIMELINE_FAILED, std::memory_order_release);
      return swy::fail(error, SWY_DEVICE_LOST, SWY_REASON_NONE, "raising a timeline: driver error %d",
                       static_cast<int>(r));
    }
  }
  return SWY_OK;
}

swy_status timeline_create(swy_device* device, swy_timeline** out, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    if (const swy_status s = use(*device, error); s != SWY_OK) return s;
    void* memory = nullptr;
    if (const swy_status s = check(cudaHostAlloc(&memory, 64, cudaHostAllocMapped), "allocating a timeline", error);
        s != SWY_OK) {
      return s;
    }
    auto t = std::make_unique<swy_timeline>();
    t->device = device;
    t->value = new (memory) std::atomic<uint64_t>(0);
    const std::lock_guard lock(device->timelines_mutex);
    device->timelines.push_back(t.get());
    *out = t.release();
    return SWY_OK;
  });
}

void timeline_free(swy_device* device, swy_timeline* timeline) {
  {
    const std::lock_guard lock(device->timelines_mutex);
    std::erase(device->timelines, timeline);
  }
  cudaSetDevice(device->ordinal);
  cudaStreamSynchronize(device->stream);  // it may still be going to write
  {
    const std::lock_guard lock(device->mutex);
    std::erase_if(device->arrivals, [&](const Arrival& a) { return a.timeline == timeline; });
  }
  cudaFreeHost(timeline->value);
  cudaGetLastError();
  delete timeline;
}

uint64_t timeline_value(swy_timeline* timeline) {
  if (timeline->cancelled.load(std::memory_order_acquire)) return SWY_TIMELINE_FAILED;
  const uint64_t reached = timeline->value->load(std::memory_order_acquire);
  if (reached != SWY_TIMELINE_FAILED) deliver(*timeline, reached);
  return reached;
}

void cancel(swy_device* device) {
  const std::lock_guard lock(device->timelines_mutex);
  for (swy_timeline* t : device->timelines) {
    if (t->value->load(std::memory_order_acquire) < t->signalled.load(std::memory_order_relaxed)) {
      t->cancelled.store(true, std::memory_order_release);
    }
  }
}

// Spins: a step of decoding takes a millisecond, and waking a thread takes a good part of that.
swy_status timeline_wait(swy_timeline* timeline, uint64_t value, uint64_t timeout_ns, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    const auto begin = Clock::now();
    for (uint32_t turn = 1;; ++turn) {
      if (timeline->cancelled.load(std::memory_order_acquire)) {
        return swy::fail(error, SWY_CANCELLED, SWY_REASON_NONE,
                         "the step was cancelled; the device may still be at it");
      }
      const uint64_t reached = timeline->value->load(std::memory_order_acquire);
      if (reached == SWY_TIMELINE_FAILED) {
        check_alive(*timeline, error);
        return SWY_DEVICE_LOST;
      }
      if (reached >= value) {
        deliver(*timeline, reached);
        return SWY_OK;
      }
      if (turn % 1024 != 0) {
        __builtin_ia32_pause();
        continue;
      }
      const auto waited = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
      if (static_cast<uint64_t>(waited) > timeout_ns) {
        return swy::fail(error, SWY_CANCELLED, SWY_REASON_NONE, "value %llu was not reached in time",
                         static_cast<unsigned long long>(value));
      }
      if (waited < 5'000'000) continue;
      if (const swy_status s = check_alive(*timeline, error); s != SWY_OK) return s;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
}

}  // namespace gpu
