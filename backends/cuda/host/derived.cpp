// SPDX-License-Identifier: Apache-2.0
#include "derived.h"

#include <algorithm>
#include <utility>

#include "device.h"
#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

// Of the device's memory, left to lists and to what else comes later. Nobody has planned for derived weights: they make
// a model faster, but it needs none of them.
constexpr uint64_t kLeft = uint64_t{256} << 20;

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

swy_status DeviceMemory::allocate(swy_device& device, uint64_t bytes, swy_error* error) {
  void* memory = nullptr;
  if (const swy_status s = check(take_memory(device, bytes, &memory), "allocating a derived weight", error);
      s != SWY_OK) {
    return s;
  }
  reset();
  device_ = &device, data_ = static_cast<char*>(memory), bytes_ = bytes;
  return SWY_OK;
}

void DeviceMemory::reset() {
  if (data_ == nullptr) return;
  cudaSetDevice(device_->ordinal);
  give_memory_back(*device_, std::exchange(data_, nullptr));
  cudaGetLastError();
  bytes_ = 0;
}

swy_status DerivedWeights::compute(swy_device& device, DerivedWeight& weight, swy_error* error) {
  swy_status s = weight.make(device, weight.memory.data(), scratch_.data(), error);
  if (s == SWY_OK) s = check(cudaStreamSynchronize(device.stream), "computing a derived weight", error);
  weight.outdated = s != SWY_OK;
  return s;
}

swy_status DerivedWeights::get(swy_device& device, const Key& key, const Sizes& sizes, DerivedWeight::Make make,
                               Weights& of_list, swy_error* error) {
  const std::lock_guard lock(mutex_);
  if (const auto it = made_.find(key); it != made_.end()) {
    of_list.push_back(it->second);
    return SWY_OK;
  }
  auto made = std::make_shared<DerivedWeight>();
  made->make = std::move(make);
  const bool grows = scratch_.bytes() < sizes.scratch_bytes;
  swy_status s = leaves_enough(sizes.bytes + (grows ? sizes.scratch_bytes : 0), error);
  if (s == SWY_OK) s = made->memory.allocate(device, sizes.bytes, error);
  if (s == SWY_OK && grows) s = scratch_.allocate(device, sizes.scratch_bytes, error);
  if (s == SWY_OK) s = compute(device, *made, error);
  if (s != SWY_OK) return s;
  made_.emplace(key, made);
  of_list.push_back(std::move(made));
  return SWY_OK;
}

swy_status DerivedWeights::renew(swy_device& device, const Weights& of_list, swy_error* error) {
  if (of_list.empty()) return SWY_OK;
  const std::lock_guard lock(mutex_);
  for (const auto& weight : of_list) {
    if (!weight->outdated) continue;
    if (const swy_status s = compute(device, *weight, error); s != SWY_OK) return s;
  }
  return SWY_OK;
}

void DerivedWeights::written(const char* memory, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, made] : made_) {
    if (touches(key, memory, bytes)) made->outdated = true;
  }
}

void DerivedWeights::freed(const char* memory, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  std::erase_if(made_, [&](const auto& entry) {
    if (!touches(entry.first, memory, bytes)) return false;
    entry.second->outdated = false;  // there is nothing left to compute it from
    return true;
  });
  if (made_.empty()) scratch_.reset();
}

void DerivedWeights::forget_all() {
  const std::lock_guard lock(mutex_);
  made_.clear();
  scratch_.reset();
}

}  // namespace gpu
