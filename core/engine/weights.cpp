#include "core/engine/weights.h"

namespace switchyard {

Result<swy_binding> WeightStore::get(uint32_t tensor, uint32_t device, uint32_t layout) {
  const auto key = std::tuple(tensor, device, layout);
  auto it = buffers_.find(key);
  if (it == buffers_.end()) {
    SWY_LET(DeviceBuffer buffer, load(program_.tensors[tensor], devices_[device], layout));
    it = buffers_.emplace(key, std::move(buffer)).first;
  }
  return it->second.all();
}

Result<DeviceBuffer> WeightStore::load(const Tensor& tensor, const PlanDevice& device, uint32_t layout) {
  const std::string what = "weight " + std::string(tensor.name);
  std::span<const std::byte> bytes = program_.segment_bytes(tensor);
  if (layout != 0) {
    const char* name = device.api->layout_name != nullptr ? device.api->layout_name(layout) : nullptr;
    const Segment* stored = nullptr;
    for (const Segment& s : tensor.segments) {
      if (name != nullptr && s.layout == name) stored = &s;
    }
    if (stored == nullptr) return pack(tensor, device, layout, bytes);
    bytes = program_.segment_bytes(*stored);
  }
  Result<DeviceBuffer> imported = DeviceBuffer::import(device, bytes);  // what lies in the file need not be copied
  if (imported.ok()) imported_.insert(&tensor);
  if (imported.ok() || imported.status().code() != Code::unsupported) return imported;
  SWY_LET(DeviceBuffer buffer, DeviceBuffer::allocate(device, SWY_MEMORY_DEVICE, bytes.size(), what));
  SWY_TRY(buffer.write(0, bytes));
  copied_ += bytes.size();
  return buffer;
}

Result<DeviceBuffer> WeightStore::pack(const Tensor& tensor, const PlanDevice& device, uint32_t layout,
                                       std::span<const std::byte> canonical) {
  const std::string what = "weight " + std::string(tensor.name);
  const swy_tensor desc = describe(tensor);
  PluginError e;
  uint64_t size = 0;
  SWY_TRY(e.status(device.api->packed_bytes(&desc, layout, &size, e.get()), device.name + ": packing " + what));
  SWY_LET(DeviceBuffer buffer, DeviceBuffer::allocate(device, SWY_MEMORY_DEVICE, size, what));
  std::vector<std::byte> staging(buffer.map() == nullptr ? size : 0);
  std::byte* to = buffer.map() == nullptr ? staging.data() : buffer.map();
  SWY_TRY(e.status(device.api->pack(&desc, layout, canonical.data(), to, e.get()), device.name + ": packing " + what));
  if (!staging.empty()) SWY_TRY(buffer.write(0, staging));
  if (!imported_.contains(&tensor)) program_.release(tensor.segments[0]);
  copied_ += size;
  return buffer;
}

}  // namespace switchyard
