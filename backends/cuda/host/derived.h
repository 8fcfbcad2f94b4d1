// SPDX-License-Identifier: Apache-2.0
// Weights that the backend computes from others of a model: each once, for all lists.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "switchyard/plugin.h"

namespace gpu {

using DeviceMemory = std::shared_ptr<char>;

class DerivedWeights {
 public:
  // The addresses of the weights that it is computed from, and a number that it depends on.
  struct Key {
    std::array<const void*, 4> from;
    float number;
    auto operator<=>(const Key&) const = default;
  };
  // What `make` has written to `bytes` of the device's memory, now or at an earlier call with this key.
  swy_status get(swy_device& device, const Key& key, uint64_t bytes, const std::function<swy_status(char*)>& make,
                 DeviceMemory* out, swy_error* error);
  // Forgets what was computed from this memory, which is freed: its addresses come again. Lists keep theirs.
  void forget(const char* memory, uint64_t bytes);
  void forget_all();

 private:
  std::mutex mutex_;
  std::map<Key, DeviceMemory> made_;
};

}  // namespace gpu
