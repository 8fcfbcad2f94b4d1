// SPDX-License-Identifier: Apache-2.0
// WeightStore: the weights of a program on the devices that read them, each once per device and layout.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "core/engine/layouts.h"
#include "core/engine/memory_need.h"
#include "core/plan/graph.h"
#include "core/plugin/buffer.h"
#include "core/program/program.h"

namespace switchyard {

// One weight as one device reads it. Layout 0 is canonical.
struct WeightUse {
  uint32_t tensor = 0;
  uint32_t device = 0;
  uint32_t layout = 0;
  swy_dtype decoded = 0;  // a weight of a described encoding that is decoded first: to this; 0: as the file has it
  auto operator<=>(const WeightUse&) const = default;
};

// How a weight of a graph is read: `weight` may be the decoded form of a tensor of the program.
WeightUse weight_use(const Graph& graph, uint32_t weight, uint32_t device, uint32_t layout);

class WeightStore {
 public:
  // Called with the bytes done and in all; returning false stops with Code::cancelled. From one thread at a time.
  using Progress = std::function<bool(uint64_t done, uint64_t total)>;

  // Both outlive the store.
  WeightStore(const Program& program, const std::vector<PlanDevice>& devices) : program_(program), devices_(devices) {}

  // Adds to `need` the device memory that the weights will take, and what they would take in other encodings.
  Status add_need(const std::vector<WeightUse>& uses, uint32_t device, MemoryNeed& need) const;

  // Imports, copies, decodes or packs the weights that are not loaded yet, on several threads. Errors: those of the
  // devices.
  Status load(std::vector<WeightUse> uses, uint32_t threads, const Progress& progress = {});

  // Frees those that are not among `uses`. Nothing reads them any more. Not thread-safe.
  void keep_only(const std::vector<WeightUse>& uses);

  // Loads it if need be. Not thread-safe.
  Result<swy_binding> get(WeightUse use);

  // Bytes that were copied, decoded or packed, in addition to those mapped from the file.
  uint64_t copied_bytes() const { return copied_; }
  // Tensors that the file has packed for a device in a form that the device does not read, so that they were packed
  // again.
  size_t repacked() const { return repacked_; }

 private:
  struct Loaded {
    DeviceBuffer buffer;
    uint64_t copied = 0;
    bool repacked = false;
  };
  Result<Loaded> make(WeightUse use) const;
  Result<Loaded> pack(WeightUse use) const;
  swy_tensor form(WeightUse use) const;
  Result<uint64_t> bytes_of(WeightUse use) const;  // that making it takes on the device
  Result<StoredLayout> stored(WeightUse use) const;
  void release_packed(WeightUse use, const std::vector<WeightUse>& uses) const;

  const Program& program_;
  const std::vector<PlanDevice>& devices_;
  std::map<WeightUse, DeviceBuffer> buffers_;
  mutable std::mutex copying_;  // packing may be done by several threads, copying to a device by one at a time
  uint64_t copied_ = 0;
  size_t repacked_ = 0;
};

}  // namespace switchyard
