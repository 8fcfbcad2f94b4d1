// SPDX-License-Identifier: Apache-2.0
#include "core/engine/verify_packed.h"

#include <algorithm>
#include <vector>

#include "core/engine/layouts.h"
#include "core/plugin/call.h"

namespace switchyard {
namespace {

struct Packing {
  const PlanDevice* device = nullptr;
  uint32_t layout = 0;
};

// Who packs this segment's layout in its revision.
Packing find_packing(std::span<const PlanDevice> devices, const Segment& segment) {
  constexpr uint32_t kMostLayouts = 256;  // ids of layouts are small numbers
  for (const PlanDevice& device : devices) {
    for (uint32_t layout = 1; layout < kMostLayouts; ++layout) {
      const auto name = layout_name(device, layout);
      if (name && name->name == segment.layout && name->revision == segment.layout_revision) return {&device, layout};
    }
  }
  return {};
}

Status compare(const Program& program, const Tensor& tensor, const Segment& segment, const Packing& by) {
  SWY_LET(const uint64_t size, packed_bytes(*by.device, tensor, by.layout));
  std::vector<std::byte> packed(size);  // zeros, as where `convert --pack` has packed
  const swy_tensor desc = describe(tensor);
  PluginError e;
  const auto pack = [&](swy_error* x) {
    return by.device->api->pack(&desc, by.layout, program.segment_bytes(tensor).data(), packed.data(), x);
  };
  SWY_TRY(e.status(call_plugin(*by.device, "pack", e.get(), pack),
                   fmt::format("{}: packing weight {}", by.device->name, tensor.name)));
  const auto stored = program.segment_bytes(segment);
  const bool same = std::equal(packed.begin(), packed.end(), stored.begin(), stored.end());
  program.release(segment);
  program.release(tensor.segments[0]);
  if (same) return {};
  return error(Code::invalid_data,
               "the {}/{} form of '{}' is not what its weights make; pack the file again with switchyard convert FILE "
               "--pack {}",
               segment.layout, segment.layout_revision, tensor.name, by.device->backend);
}

}  // namespace

Result<std::set<std::string>> verify_packed(const Program& program, std::span<const PlanDevice> devices,
                                            const Program::Progress& progress) {
  std::set<std::string> unknown;
  uint64_t total = 0, done = 0;
  for (const Tensor& tensor : program.tensors) {
    for (const Segment& segment : tensor.segments.subspan(1)) total += segment.bytes;
  }
  for (const Tensor& tensor : program.tensors) {
    for (const Segment& segment : tensor.segments.subspan(1)) {
      const Packing by = find_packing(devices, segment);
      if (by.device == nullptr) {
        unknown.insert(fmt::format("{}/{}", segment.layout, segment.layout_revision));
      } else {
        SWY_TRY(compare(program, tensor, segment, by));
      }
      done += segment.bytes;
      if (progress && !progress(done, total)) {
        return error(Code::cancelled, "stopped before all packed weights were compared");
      }
    }
  }
  return unknown;
}

}  // namespace switchyard
