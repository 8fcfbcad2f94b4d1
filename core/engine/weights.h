// WeightStore: the weights of a program on the devices that read them, each once per device and layout.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "core/plugin/buffer.h"
#include "core/program/program.h"

namespace switchyard {

class WeightStore {
 public:
  // Both outlive the store.
  WeightStore(const Program& program, const std::vector<PlanDevice>& devices) : program_(program), devices_(devices) {}

  // Imports, copies or packs on the first request. Not thread-safe.
  Result<swy_binding> get(uint32_t tensor, uint32_t device, uint32_t layout);

  // Bytes that were copied or packed, beyond what is mapped from the file.
  uint64_t copied_bytes() const { return copied_; }

 private:
  Result<DeviceBuffer> load(const Tensor& tensor, const PlanDevice& device, uint32_t layout);
  Result<DeviceBuffer> pack(const Tensor& tensor, const PlanDevice& device, uint32_t layout,
                            std::span<const std::byte> canonical);

  const Program& program_;
  const std::vector<PlanDevice>& devices_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, DeviceBuffer> buffers_;
  std::set<const Tensor*> imported_;  // read where they lie in the file
  uint64_t copied_ = 0;
};

}  // namespace switchyard
