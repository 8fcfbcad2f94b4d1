// SPDX-License-Identifier: Apache-2.0
// A CUDA device as the plugin sees it: one stream that runs steps and copies in order, and the staging memory for
// copies.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "card.h"
#include "derived.h"
#include "profile.h"
#include "rates.h"
#include "switchyard/plugin.h"

namespace gpu {

// Page-locked memory for one copy; free again when the event `done` has completed.
struct Staging {
  void* memory = nullptr;
  uint64_t bytes = 0;
  cudaStream_t stream = nullptr;  // of large copies, which do not wait for steps
  cudaEvent_t done = nullptr;
};

// A copy to the host that a timeline announces. The first reader that sees the value reached fills `to`.
struct Arrival {
  swy_timeline* timeline = nullptr;
  uint64_t value = 0;
  void* to = nullptr;
  Staging* from = nullptr;
  uint64_t bytes = 0;
};

}  // namespace gpu

struct swy_device {
  int ordinal = 0;
  int processors = 0;  // streaming multiprocessors
  gpu::Features features;
  gpu::Rates rates;
  bool kv_bf16 = true, kv_i8 = false, delta_i16 = true;  // the forms of states (swy::StateForms)
  bool bytes = true;                                     // prompts by the kernels *.bytes
  bool pooled = false;                                   // the driver has pools of memory
  cudaStream_t stream = nullptr;
  std::vector<swy_kernel> kernels;
  gpu::DerivedWeights derived;

  std::mutex mutex;  // over everything below
  std::vector<std::unique_ptr<gpu::Staging>> small, large;
  std::vector<gpu::Staging*> free_large;
  size_t next_small = 0;
  std::deque<gpu::Arrival> arrivals;
  std::unique_ptr<gpu::Profile> profile = std::make_unique<gpu::Profile>();

  std::mutex timelines_mutex;  // never held while anything is waited for
  std::vector<swy_timeline*> timelines;
};

struct swy_buffer {
  char* data = nullptr;
  uint64_t bytes = 0;
  bool on_host = false;
};

struct swy_timeline {
  swy_device* device = nullptr;
  std::atomic<uint64_t>* value = nullptr;  // page-locked; the device writes it
  std::atomic<uint64_t> signalled = 0;     // the last value that was requested
  std::atomic<bool> cancelled = false;     // for good; the device may still reach the value later
};

namespace gpu {

// Makes a device current for the calling thread.
swy_status use(const swy_device& device, swy_error* error);

// The result of a call of the CUDA runtime as a status with one line of text.
swy_status check(cudaError_t result, const char* what, swy_error* error);

swy_status device_count(uint32_t* count, swy_error* error);
swy_status device_info(uint32_t index, swy_device_info* out, swy_error* error);
swy_status device_open(uint32_t index, const swy_setting* settings, uint32_t count, swy_device** out, swy_error* error);
void device_close(swy_device* device);

swy_status buffer_alloc(swy_device* device, swy_memory_type type, uint64_t bytes, swy_buffer** out, swy_error* error);
void buffer_free(swy_device* device, swy_buffer* buffer);
// Memory as buffers have it, not cleared.
cudaError_t take_memory(const swy_device& device, uint64_t bytes, void** out);
void give_memory_back(const swy_device& device, void* memory);
void* buffer_map(swy_device* device, swy_buffer* buffer);
swy_status write(swy_device* device, swy_buffer* to, uint64_t offset, const void* from, uint64_t bytes,
                 const swy_submit* submit, swy_error* error);
swy_status read(swy_device* device, void* to, swy_buffer* from, uint64_t offset, uint64_t bytes,
                const swy_submit* submit, swy_error* error);
swy_status fill_zero(swy_device* device, swy_buffer* buffer, uint64_t offset, uint64_t bytes, swy_error* error);

swy_status list_begin(swy_device* device, const swy_list_info* info, swy_list** out, swy_error* error);
swy_status list_finalize(swy_list* list, swy_error* error);
swy_status list_submit(swy_list* list, const swy_submit* submit, swy_error* error);
void list_free(swy_list* list);

swy_status timeline_create(swy_device* device, swy_timeline** out, swy_error* error);
void timeline_free(swy_device* device, swy_timeline* timeline);
uint64_t timeline_value(swy_timeline* timeline);
swy_status timeline_wait(swy_timeline* timeline, uint64_t value, uint64_t timeout_ns, swy_error* error);
// Ends the waits for what is under way: their timelines fail. The device computes on: a kernel cannot be stopped.
void cancel(swy_device* device);
// Waits for the points of other devices that `submit` names. Those of this device are on the same stream, and were put
// there before. Before any lock is taken.
swy_status await_points(const swy_device& device, const swy_submit* submit, swy_error* error);
// Raises the timelines of `submit` once all earlier work on the device's stream is done. NULL: none to raise.
swy_status signal(swy_device& device, const swy_submit* submit, swy_error* error);
// Uses the CUDA runtime's stream memory operation; false if the driver has none.
bool timelines_available();

}  // namespace gpu
