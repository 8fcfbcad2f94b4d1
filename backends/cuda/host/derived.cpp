// SPDX-License-Identifier: Apache-2.0
#include "derived.h"

#include <algorithm>

#include "device.h"

namespace gpu {

swy_status DerivedWeights::get(swy_device& device, const Key& key, uint64_t bytes,
                               const std::function<swy_status(char*)>& make, DeviceMemory* out, swy_error* error) {
  const std::lock_guard lock(mutex_);
  if (const auto it = made_.find(key); it != made_.end()) {
    *out = it->second;
    return SWY_OK;
  }
  void* memory = nullptr;
  if (const swy_status s = check(take_memory(device, bytes, &memory), "allocating a derived weight", error);
      s != SWY_OK) {
    return s;
  }
  DeviceMemory made(static_cast<char*>(memory), [&device](char* p) {
    cudaSetDevice(device.ordinal);
    give_memory_back(device, p);
    cudaGetLastError();
  });
  if (const swy_status s = make(made.get()); s != SWY_OK) return s;
  made_.emplace(key, made);
  *out = std::move(made);
  return SWY_OK;
}

void DerivedWeights::forget(const char* memory, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  std::erase_if(made_, [&](const auto& entry) {
    return std::any_of(entry.first.from.begin(), entry.first.from.end(), [&](const void* from) {
      const auto* at = static_cast<const char*>(from);
      return at >= memory && at < memory + bytes;
    });
  });
}

void DerivedWeights::forget_all() {
  const std::lock_guard lock(mutex_);
  made_.clear();
}

}  // namespace gpu
