// SPDX-License-Identifier: Apache-2.0
// Command lists: a stream's capture, kept as a graph that the device replays by itself.
#include "list.h"

#include <memory>

#include "ahead.h"
#include "common/stamps.cuh"
#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

constexpr uint64_t kCounters = 65536;

void set_step(swy_list& list, const swy_list_info& info) {
  const auto place = [](const swy_binding& b) { return b.buffer == nullptr ? nullptr : b.buffer->data + b.offset; };
  list.bucket = *info.bucket;
  list.step = reinterpret_cast<const swy_step*>(place(info.step));
  list.tokens = reinterpret_cast<int32_t*>(place(info.tokens));
}

// Between two steps of a list is what is between any two of its kernels. Kernels read what earlier lists have written,
// such as keys, before they wait. They may here, too, since the step before has drawn: `finish` and `gather`, which may
// follow it, let the next kernel begin only when they have waited themselves, so when all before them has ended.
swy_status next_step(swy_list* list, const swy_list_info* info, swy_error*) {
  set_step(*list, *info);
  return SWY_OK;
}

}  // namespace

const swy_ahead kAhead = {sizeof(swy_ahead), 0, next_step};

swy_status list_begin(swy_device* device, const swy_list_info* info, swy_list** out, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    if (const swy_status s = use(*device, error); s != SWY_OK) return s;
    auto list = std::make_unique<swy_list>();
    list->device = device;
    set_step(*list, *info);
    cudaError_t e = cudaMalloc(reinterpret_cast<void**>(&list->counters), kCounters * sizeof(uint32_t));
    if (e == cudaSuccess) e = cudaMemsetAsync(list->counters, 0, kCounters * sizeof(uint32_t), device->stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(device->stream);
    if (e == cudaSuccess) e = cudaStreamCreateWithFlags(&list->capture, cudaStreamNonBlocking);
    if (e == cudaSuccess) e = cudaStreamBeginCapture(list->capture, cudaStreamCaptureModeRelaxed);
    list->capturing = e == cudaSuccess;
    swy_status s = e == cudaSuccess ? begin_spans(*list, error) : check(e, "beginning a list", error);
    if (s != SWY_OK) {
      list_free(list.release());
      return s;
    }
    *out = list.release();
    return SWY_OK;
  });
}

swy_status list_finalize(swy_list* list, swy_error* error) {
  if (const swy_status s = use(*list->device, error); s != SWY_OK) return s;
  list->capturing = false;
  cudaError_t e = cudaStreamEndCapture(list->capture, &list->graph);
  if (e == cudaSuccess) e = cudaGraphInstantiate(&list->executable, list->graph, 0);
  if (e == cudaSuccess) e = cudaGraphUpload(list->executable, list->device->stream);
  return check(e, "finalizing a list", error);
}

swy_status list_submit(swy_list* list, const swy_submit* submit, swy_error* error) {
  swy_device& device = *list->device;
  if (const swy_status s = await_points(device, submit, error); s != SWY_OK) return s;
  if (const swy_status s = use(device, error); s != SWY_OK) return s;
  if (const swy_status s = device.derived.renew(device, list->derived, error); s != SWY_OK) return s;
  if (const cudaError_t e = cudaGraphLaunch(list->executable, device.stream); e != cudaSuccess) {
    return check(e, "starting a list", error);
  }
#ifdef SWITCHYARD_STAMPS
  count_list();
#endif
  if (list->ticks != nullptr && device.profile->spans.on()) {
    if (const swy_status s = keep_spans(*list, error); s != SWY_OK) return s;
  }
  // What the list waits for was put on the same stream before.
  return signal(device, submit, error);
}

void list_free(swy_list* list) {
  cudaSetDevice(list->device->ordinal);
  if (list->capturing) {
    cudaGraph_t unfinished = nullptr;
    cudaStreamEndCapture(list->capture, &unfinished);
    if (unfinished != nullptr) cudaGraphDestroy(unfinished);
  }
  cudaStreamSynchronize(list->device->stream);
  if (list->executable != nullptr) cudaGraphExecDestroy(list->executable);
  if (list->graph != nullptr) cudaGraphDestroy(list->graph);
  if (list->capture != nullptr) cudaStreamDestroy(list->capture);
  cudaFree(list->counters);
  cudaFree(list->ticks);
  cudaGetLastError();
  delete list;
}

uint32_t* take_counters(swy_list& list, uint32_t n, swy_error* error) {
  if (list.counters_used + n > kCounters) {
    swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "a list has room for %llu counters",
              static_cast<unsigned long long>(kCounters));
    return nullptr;
  }
  uint32_t* p = list.counters + list.counters_used;
  list.counters_used += n;
  return p;
}

}  // namespace gpu
