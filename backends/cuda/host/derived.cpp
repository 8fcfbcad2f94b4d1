// SPDX-License-Identifier: Apache-2.0
#include "derived.h"

#include <algorithm>

#include "device.h"
#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

constexpr uint64_t kLeft = uint64_t{256} << 20;  // of the device's memory, for lists and what else comes later

// What is computed here makes a model faster, but it needs none of it.
swy_status leaves_enough(uint64_t bytes, swy_error* error) {
  size_t free = 0, total = 0;
  if (const swy_status s = check(cudaMemGetInfo(&free, &total), "asking for free memory", error); s != SWY_OK) return s;
  if (free >= bytes + kLeft) return SWY_OK;
  return swy::fail(error, SWY_OUT_OF_DEVICE_MEMORY, SWY_REASON_NONE,
                   "%zu MiB are free, too little for a derived weight", free >> 20);
}

bool touches(const DerivedWeights::Key& key, const char* memory, uint64_t bytes) {
  return std::any_of(key.from.begin(), key.from.end(), [&](const DerivedWeights::Source& from) {
    const auto* data = static_cast<const char*>(from.data);
    return data < memory + bytes && memory < data + from.bytes;
  });
}

}  // namespace

DerivedWeight::~DerivedWeight() {
  if (memory_ == nullptr) return;
  cudaSetDevice(device_.ordinal);
  give_memory_back(device_, memory_);
  cudaGetLastError();
}

swy_status DerivedWeight::allocate(uint64_t bytes, swy_error* error) {
  void* memory = nullptr;
  const swy_status s = check(take_memory(device_, bytes, &memory), "allocating a derived weight", error);
  memory_ = static_cast<char*>(memory);
  return s;
}

swy_status DerivedWeight::renew(swy_error* error) {
  if (!outdated_.exchange(false)) return SWY_OK;
  const swy_status s = make_(device_, memory_, error);
  if (s != SWY_OK) outdated_ = true;
  return s;
}

swy_status DerivedWeights::get(swy_device& device, const Key& key, uint64_t bytes, DerivedWeight::Make make,
                               std::shared_ptr<DerivedWeight>* out, swy_error* error) {
  const std::lock_guard lock(mutex_);
  if (const auto it = made_.find(key); it != made_.end()) {
    *out = it->second;
    return SWY_OK;
  }
  auto made = std::make_shared<DerivedWeight>(device, std::move(make));
  swy_status s = leaves_enough(bytes, error);
  if (s == SWY_OK) s = made->allocate(bytes, error);
  if (s == SWY_OK) s = made->renew(error);
  if (s != SWY_OK) return s;
  made_.emplace(key, made);
  *out = std::move(made);
  return SWY_OK;
}

void DerivedWeights::written(const char* memory, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, made] : made_) {
    if (touches(key, memory, bytes)) made->outdate();
  }
}

void DerivedWeights::freed(const char* memory, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  std::erase_if(made_, [&](const auto& entry) { return touches(entry.first, memory, bytes); });
}

void DerivedWeights::forget_all() {
  const std::lock_guard lock(mutex_);
  made_.clear();
}

}  // namespace gpu
