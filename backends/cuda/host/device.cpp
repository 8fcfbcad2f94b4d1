// SPDX-License-Identifier: Apache-2.0
// Devices: listing, opening and closing.
#include "device.h"

#include "common/stamps.cuh"
#include "kernels.h"
#include "options.h"
#include "reply.h"
#include "switchyard/sdk/device_backend.hpp"

namespace gpu {
namespace {

// Names and properties of all devices, read once; they do not change while the process runs.
struct Properties {
  cudaError_t result = cudaSuccess;
  std::vector<cudaDeviceProp> devices;
  std::vector<std::string> arch;
};

const Properties& properties() {
  static const Properties all = [] {
    Properties p;
    int count = 0;
    p.result = cudaGetDeviceCount(&count);
    for (int i = 0; p.result == cudaSuccess && i < count; ++i) {
      cudaDeviceProp one{};
      p.result = cudaGetDeviceProperties(&one, i);
      p.devices.push_back(one);
      const int capability = one.major * 10 + one.minor;
      p.arch.push_back("sm_" + std::to_string(capability) + (capability == 90 ? "a" : ""));
    }
    cudaGetLastError();
    return p;
  }();
  return all;
}

swy_status find_device(uint32_t index, const cudaDeviceProp** out, swy_error* error) {
  const Properties& all = properties();
  if (index >= all.devices.size()) {
    return swy::fail(error, SWY_INVALID_ARGUMENT, SWY_REASON_NONE, "there is no device %u; this machine has %zu", index,
                     all.devices.size());
  }
  *out = &all.devices[index];
  return SWY_OK;
}

std::string_view card_of(const swy_setting* settings, uint32_t count) {
  std::string_view value = kCard.default_value;
  for (uint32_t i = 0; i < count; ++i) {
    if (std::string_view(settings[i].name) == kCard.name) value = settings[i].value;
  }
  return value;
}

swy_status open(uint32_t index, const swy_setting* settings, uint32_t count, swy_device& d, swy_error* error) {
  const cudaDeviceProp* p = nullptr;
  if (const swy_status s = find_device(index, &p, error); s != SWY_OK) return s;
  d.ordinal = static_cast<int>(index);
  d.processors = p->multiProcessorCount;
  d.pooled = p->memoryPoolsSupported != 0;
  if (p->major * 10 + p->minor < kLeastCapability) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH,
                     "%s has compute capability %d.%d; the kernels need 8.0 (Ampere) or more", p->name, p->major,
                     p->minor);
  }
  d.kv_bf16 = swy::is_on(swy::kKvBf16, settings, count);
  d.kv_i8 = swy::is_on(gpu::kKvI8, settings, count);
  d.delta_i16 = swy::is_on(gpu::kDeltaI16, settings, count);
  d.bytes = swy::is_on(gpu::kBytes, settings, count);
  if (const swy_status s = use(d, error); s != SWY_OK) return s;
  int code = 0;
  if (const swy_status s = code_of_kernels(&code, error); s != SWY_OK) return s;
  if (const swy_status s = features_of(*p, code, card_of(settings, count), &d.features, error); s != SWY_OK) return s;
  if (!timelines_available()) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "the driver has no stream memory operations");
  }
  if (const swy_status s =
          check(cudaStreamCreateWithFlags(&d.stream, cudaStreamNonBlocking), "creating a stream", error);
      s != SWY_OK) {
    return s;
  }
  d.rates = rates_of(d);
  if (const swy_status s = prepare_small_copies(error); s != SWY_OK) return s;
  if (const swy_status s = check_sampling(d, error); s != SWY_OK) return s;
  d.kernels = make_kernels(d);
#ifdef SWITCHYARD_STAMPS
  open_stamps();
#endif
  return SWY_OK;
}

}  // namespace

swy_status use(const swy_device& device, swy_error* error) {
  return check(cudaSetDevice(device.ordinal), "choosing the device", error);
}

swy_status check(cudaError_t result, const char* what, swy_error* error) {
  if (result == cudaSuccess) return SWY_OK;
  cudaGetLastError();  // clears an error that is not sticky, so that the next call does not report it
  swy_status status = SWY_INTERNAL;
  switch (result) {
    case cudaErrorMemoryAllocation:
      status = SWY_OUT_OF_DEVICE_MEMORY;
      break;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorNotSupported:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
      break;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
      status = SWY_UNSUPPORTED;
      break;
    default:  // a fault of a kernel, or the device itself: every later call fails, too
      status = SWY_DEVICE_LOST;
  }
  return swy::fail(error, status, status == SWY_UNSUPPORTED ? SWY_REASON_ARCH : SWY_REASON_NONE, "%s: %s (%s)", what,
                   cudaGetErrorString(result), cudaGetErrorName(result));
}

swy_status device_count(uint32_t* count, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    const Properties& all = properties();
    *count = static_cast<uint32_t>(all.devices.size());
    if (*count != 0) return SWY_OK;
    if (all.result == cudaErrorInsufficientDriver) {
      int driver = 0, runtime = 0;
      cudaDriverGetVersion(&driver);
      cudaRuntimeGetVersion(&runtime);
      if (driver == 0) {
        swy::fail(error, SWY_OK, SWY_REASON_ARCH, "there is no NVIDIA driver (libcuda.so.1) on this machine");
      } else {
        swy::fail(error, SWY_OK, SWY_REASON_ARCH,
                  "the NVIDIA driver supports CUDA %d.%d; this build needs %d.%d or newer", driver / 1000,
                  driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
      }
    } else {
      swy::fail(error, SWY_OK, SWY_REASON_ARCH, "no CUDA device: %s",
                all.result == cudaSuccess ? "the driver lists none" : cudaGetErrorString(all.result));
    }
    return SWY_OK;
  });
}

swy_status device_info(uint32_t index, swy_device_info* out, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    const cudaDeviceProp* p = nullptr;
    if (const swy_status s = find_device(index, &p, error); s != SWY_OK) return s;
    size_t free = 0, total = p->totalGlobalMem;
    if (const swy_status s = check(cudaSetDevice(static_cast<int>(index)), "choosing the device", error); s != SWY_OK) {
      return s;
    }
    if (const swy_status s = check(cudaMemGetInfo(&free, &total), "asking for free memory", error); s != SWY_OK)
      return s;
    swy_device_info info{};
    info.type = SWY_DEVICE_GPU;
    info.name = p->name;
    info.arch = properties().arch[index].c_str();
    info.memory_bytes = total;
    info.memory_free_bytes = free;
    info.buffer_alignment = 256;
    info.flags = SWY_DEVICE_NATIVE_REPLAY;
    info.sampling = SWY_SAMPLING_LOGITS | SWY_SAMPLING_TOPK_CANDIDATES | SWY_SAMPLING_TOKEN;
    info.sampling_steps = swy::kSamplesEverything;
    swy::give_info(info, out);
    return SWY_OK;
  });
}

swy_status device_open(uint32_t index, const swy_setting* settings, uint32_t count, swy_device** out,
                       swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    auto device = std::make_unique<swy_device>();
    const swy_status s = open(index, settings, count, *device, error);
    if (s != SWY_OK) {
      if (device->stream != nullptr) cudaStreamDestroy(device->stream);
      return s;
    }
    *out = device.release();
    return SWY_OK;
  });
}

void device_close(swy_device* device) {
  cudaSetDevice(device->ordinal);
  cudaStreamSynchronize(device->stream);
  device->derived.forget_all();
#ifdef SWITCHYARD_STAMPS
  save_stamps();
#endif
  for (const auto* all : {&device->small, &device->large}) {
    for (const auto& s : *all) {
      cudaFreeHost(s->memory);
      if (s->stream != nullptr) cudaStreamDestroy(s->stream);
      cudaEventDestroy(s->done);
    }
  }
  cudaFree(device->profile->tick);
  cudaStreamDestroy(device->stream);
  delete device;
}

}  // namespace gpu
