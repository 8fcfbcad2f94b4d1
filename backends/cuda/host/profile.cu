// SPDX-License-Identifier: Apache-2.0
#include "profile.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "list.h"
#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

// Nanoseconds of the device's clock.
__global__ void note_time(uint64_t* to) {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  *to = now;
}

uint64_t host_now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

// The kernel's name, such as "gate_up_boxes", from its mangled name.
std::string word_of(const void* function) {
  const char* mangled = nullptr;
  if (cudaFuncGetName(&mangled, function) != cudaSuccess || mangled == nullptr) {
    cudaGetLastError();
    return "kernel";
  }
  int failed = 0;
  char* plain = abi::__cxa_demangle(mangled, nullptr, nullptr, &failed);
  std::string name = failed == 0 && plain != nullptr ? plain : mangled;
  std::free(plain);
  constexpr std::string_view kHidden = "(anonymous namespace)::";
  if (const size_t at = name.find(kHidden); at != std::string::npos) name.erase(0, at + kHidden.size());
  name.erase(std::min(name.find_first_of("<("), name.size()));
  return name.substr(name.find_last_of(" :") + 1);  // of "void gpu::combine_grouped"
}

swy_status enable(swy_device* device, uint32_t on, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    device->profile->spans.enable(on != 0);
    return SWY_OK;
  });
}

swy_status collect(swy_device* device, swy_profile_span* spans, uint32_t* count, swy_error*) {
  *count = device->profile->spans.collect(spans, *count);
  return SWY_OK;
}

swy_status time_now(swy_device& d, uint64_t* ticks, swy_error* error) {
  note_time<<<1, 1, 0, d.stream>>>(d.profile->tick);
  cudaError_t e = cudaGetLastError();
  if (e == cudaSuccess) e = cudaMemcpyAsync(ticks, d.profile->tick, sizeof *ticks, cudaMemcpyDeviceToHost, d.stream);
  if (e == cudaSuccess) e = cudaStreamSynchronize(d.stream);
  return check(e, "reading the device's clock", error);
}

// Runs a kernel that stores the device's time between two readings of the host's clock; takes the closest of several
// tries.
swy_status correlate(swy_device* device, uint64_t* host_ns, uint64_t* device_ticks, uint64_t* tick_ps,
                     swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    if (const swy_status s = use(*device, error); s != SWY_OK) return s;
    if (device->profile->tick == nullptr) {
      const cudaError_t e = cudaMalloc(reinterpret_cast<void**>(&device->profile->tick), sizeof(uint64_t));
      if (e != cudaSuccess) return check(e, "making room for a timestamp", error);
    }
    uint64_t closest = UINT64_MAX;
    for (int i = 0; i < 4; ++i) {
      uint64_t ticks = 0;
      const uint64_t before = host_now();
      if (const swy_status s = time_now(*device, &ticks, error); s != SWY_OK) return s;
      const uint64_t after = host_now();
      if (after - before >= closest) continue;
      closest = after - before;
      *host_ns = before + closest / 2;
      *device_ticks = ticks;
    }
    *tick_ps = 1000;
    return SWY_OK;
  });
}

uint64_t dropped(swy_device* device) { return device->profile->spans.lost(); }

swy_status note(swy_list& list, swy_error* error) {
  note_time<<<1, 1, 0, list.capture>>>(list.ticks + list.spans.size());
  return check(cudaGetLastError(), "recording a timestamp", error);
}

}  // namespace

swy_status code_of_kernels(int* capability, swy_error* error) {
  cudaFuncAttributes a{};
  const cudaError_t e = cudaFuncGetAttributes(&a, note_time);
  *capability = a.ptxVersion;
  return check(e, "looking for code for the device", error);
}

const swy_profile kProfile = {sizeof(swy_profile), 0, enable, collect, correlate, dropped};

swy_status begin_spans(swy_list& list, swy_error* error) {
  if (!list.device->profile->spans.on()) return SWY_OK;
  const cudaError_t e = cudaMalloc(reinterpret_cast<void**>(&list.ticks), kMostTicks * sizeof *list.ticks);
  if (e != cudaSuccess) return check(e, "making room for timestamps", error);
  return note(list, error);
}

swy_status note_launch(swy_list& list, const void* function, swy_error* error) {
  if (list.ticks == nullptr || list.spans.size() + 1 == kMostTicks) return SWY_OK;
  const char* name = list.kernel == nullptr ? "" : list.kernel;
  if (!list.begins) name = list.device->profile->spans.name(std::string(name) + "/" + word_of(function));
  list.begins = false;
  list.spans.push_back(name);
  return note(list, error);
}

swy_status keep_spans(swy_list& list, swy_error* error) {
  swy_device& d = *list.device;
  std::vector<uint64_t> ticks(list.spans.size() + 1);
  cudaError_t e = cudaStreamSynchronize(d.stream);
  if (e == cudaSuccess) {
    e = cudaMemcpy(ticks.data(), list.ticks, ticks.size() * sizeof ticks[0], cudaMemcpyDeviceToHost);
  }
  if (e != cudaSuccess) return check(e, "reading timestamps", error);
  for (size_t i = 0; i < list.spans.size(); ++i) d.profile->spans.keep(list.spans[i], ticks[i], ticks[i + 1]);
  return SWY_OK;
}

}  // namespace gpu
