// Command lists: a stream's capture, kept as a graph that the device replays by itself.
#include "list.h"

#include <memory>

#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

constexpr uint64_t kCounters = 65536;
constexpr size_t kMostAhead = 256, kMostRoutes = 64;

// Room for routers ahead of their mixtures; their sums are zeroed when the list begins.
cudaError_t begin_routes(swy_list& list) {
#ifdef SWITCHYARD_TRY_ROUTE
  if (list.bucket.rows != 1) return cudaSuccess;
  const size_t bytes = kMostRoutes * kMostSums * sizeof(long long);
  cudaError_t e = cudaMalloc(reinterpret_cast<void**>(&list.routes_on_device), kMostRoutes * sizeof(RouteAhead));
  if (e == cudaSuccess) e = cudaMalloc(reinterpret_cast<void**>(&list.route_sums), bytes);
  if (e == cudaSuccess) e = cudaMemsetAsync(list.route_sums, 0, bytes, list.capture);
  return e;
#else
  return list.routes_on_device == nullptr ? cudaSuccess : cudaErrorUnknown;
#endif
}

}  // namespace

swy_status list_begin(swy_device* device, const swy_list_info* info, swy_list** out, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    if (const swy_status s = use(*device, error); s != SWY_OK) return s;
    auto list = std::make_unique<swy_list>();
    list->device = device;
    list->bucket = *info->bucket;
    list->step = reinterpret_cast<const swy_step*>(info->step.buffer->data + info->step.offset);
    list->tokens = info->tokens.buffer == nullptr
                       ? nullptr
                       : reinterpret_cast<int32_t*>(info->tokens.buffer->data + info->tokens.offset);
    cudaError_t e = cudaMalloc(reinterpret_cast<void**>(&list->counters), kCounters * sizeof(uint32_t));
    if (e == cudaSuccess) e = cudaMalloc(reinterpret_cast<void**>(&list->ahead_on_device), kMostAhead * sizeof(Ahead));
    if (e == cudaSuccess) e = cudaMemsetAsync(list->counters, 0, kCounters * sizeof(uint32_t), device->stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(device->stream);
    if (e == cudaSuccess) e = cudaStreamCreateWithFlags(&list->capture, cudaStreamNonBlocking);
    if (e == cudaSuccess) e = cudaStreamBeginCapture(list->capture, cudaStreamCaptureModeRelaxed);
    list->capturing = e == cudaSuccess;
    if (e == cudaSuccess) e = begin_routes(*list);
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
  if (e == cudaSuccess && !list->ahead.empty()) {
    e = cudaMemcpy(list->ahead_on_device, list->ahead.data(), list->ahead.size() * sizeof(Ahead),
                   cudaMemcpyHostToDevice);
  }
  if (e == cudaSuccess && !list->routes.empty()) {
    e = cudaMemcpy(list->routes_on_device, list->routes.data(), list->routes.size() * sizeof(RouteAhead),
                   cudaMemcpyHostToDevice);
  }
  if (e == cudaSuccess) e = cudaGraphInstantiate(&list->executable, list->graph, 0);
  if (e == cudaSuccess) e = cudaGraphUpload(list->executable, list->device->stream);
  return check(e, "finalizing a list", error);
}

swy_status list_submit(swy_list* list, const swy_submit* submit, swy_error* error) {
  swy_device& device = *list->device;
  if (const swy_status s = use(device, error); s != SWY_OK) return s;
  if (const cudaError_t e = cudaGraphLaunch(list->executable, device.stream); e != cudaSuccess) {
    return check(e, "starting a list", error);
  }
  if (list->ticks != nullptr && device.profile->on) {
    if (const swy_status s = keep_spans(*list, error); s != SWY_OK) return s;
  }
  // What it waits for was put on the same stream before.
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
  cudaFree(list->ahead_on_device);
  cudaFree(list->routes_on_device);
  cudaFree(list->route_sums);
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

const Ahead* take_ahead(swy_list& list) {
  if (list.ahead.size() == kMostAhead) return nullptr;
  list.ahead.push_back({});
  return list.ahead_on_device + list.ahead.size() - 1;
}

const RouteAhead* take_route(swy_list& list, const float* y) {
  if (list.routes_on_device == nullptr || list.routes.size() == kMostRoutes) return nullptr;
  list.routes.push_back({});
  list.route_inputs.push_back(y);
  return list.routes_on_device + list.routes.size() - 1;
}

RouteAhead* last_route(swy_list& list, const float* x) {
  if (list.routes.empty() || list.routes.back().experts != 0 || list.route_inputs.back() != x) return nullptr;
  list.routes.back().sums = list.route_sums + (list.routes.size() - 1) * kMostSums;
  return &list.routes.back();
}

Ahead* last_ahead(swy_list& list) {
  return list.ahead.empty() || list.ahead.back().bytes[0] != 0 ? nullptr : &list.ahead.back();
}

}  // namespace gpu
