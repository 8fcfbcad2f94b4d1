// SPDX-License-Identifier: Apache-2.0
// Layouts of packed weights: the names that backends give them, and a tensor's stored form in a layout.
#pragma once

#include <optional>
#include <string_view>

#include "core/plugin/device.h"
#include "core/program/program.h"

namespace switchyard {

// "cpu.panels16/1": a name and a revision, as in Segment. Without a number the revision is 0.
struct LayoutName {
  std::string_view name;
  uint32_t revision = 0;
};
LayoutName parse_layout_name(std::string_view text);

// The name of a layout at the device's backend; none if it has no name, so that no file can hold it.
std::optional<LayoutName> layout_name(const PlanDevice& device, uint32_t layout);

// Bytes of a tensor in a packed layout. Errors: those of the backend, with the tensor's name.
Result<uint64_t> packed_bytes(const PlanDevice& device, const Tensor& tensor, uint32_t layout);
// The same for what `desc` describes, the tensor of that name or its decoded form.
Result<uint64_t> packed_bytes(const PlanDevice& device, std::string_view name, const swy_tensor& desc, uint32_t layout);

// How a tensor is stored in a layout of a device.
struct StoredLayout {
  const Segment* segment = nullptr;  // NULL: not at all
  bool stale = false;                // there is one of another revision or size, which the device cannot read
};
Result<StoredLayout> find_layout(const PlanDevice& device, const Tensor& tensor, uint32_t layout);

}  // namespace switchyard
