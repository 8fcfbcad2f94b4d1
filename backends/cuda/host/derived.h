// SPDX-License-Identifier: Apache-2.0
// Weights that the backend computes from others of a model: each once, for all lists, and again when one of those is
// written.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "switchyard/plugin.h"

namespace gpu {

// Memory of a device's, given back at the end.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { reset(); }

  // Replaces what it has, unless this fails.
  swy_status allocate(swy_device& device, uint64_t bytes, swy_error* error);
  void reset();
  char* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  swy_device* device_ = nullptr;
  char* data_ = nullptr;
  uint64_t bytes_ = 0;
};

struct DerivedWeight {
  // Puts kernels that compute it into `memory` on the device's stream. The contents of `scratch` are undefined, and
  // lost later.
  using Make = std::function<swy_status(swy_device& device, char* memory, char* scratch, swy_error* error)>;

  Make make;
  DeviceMemory memory;
  bool outdated = true;  // its sources were written since it was computed
};

class DerivedWeights {
 public:
  struct Source {
    const void* data;
    uint64_t bytes;
    auto operator<=>(const Source&) const = default;
  };
  // What it is computed from, and a number that it depends on.
  struct Key {
    std::array<Source, 4> from;
    float number;
    auto operator<=>(const Key&) const = default;
  };
  struct Sizes {
    uint64_t bytes, scratch_bytes;
  };
  using Weights = std::vector<std::shared_ptr<DerivedWeight>>;

  // Adds the weight of a key to those of a list; computes it if there is none yet. SWY_OUT_OF_DEVICE_MEMORY: there is
  // no room for it, and the list has to do without.
  swy_status get(swy_device& device, const Key& key, const Sizes& sizes, DerivedWeight::Make make, Weights& of_list,
                 swy_error* error);
  // Before a list that reads them is started: computes those anew whose sources were written. That allocates nothing.
  swy_status renew(swy_device& device, const Weights& of_list, swy_error* error);
  // This memory has been written; or is freed, and its addresses may come again. Lists keep what they have.
  void written(const char* memory, uint64_t bytes);
  void freed(const char* memory, uint64_t bytes);
  void forget_all();

 private:
  swy_status compute(swy_device& device, DerivedWeight& weight, swy_error* error);

  std::mutex mutex_;      // over everything below
  DeviceMemory scratch_;  // enough for all of them
  std::map<Key, std::shared_ptr<DerivedWeight>> made_;
};

}  // namespace gpu
