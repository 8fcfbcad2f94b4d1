// SPDX-License-Identifier: Apache-2.0
#include "core/engine/layouts.h"

#include <charconv>

#include "core/plugin/buffer.h"

namespace switchyard {

LayoutName parse_layout_name(std::string_view text) {
  const size_t slash = text.rfind('/');
  if (slash == std::string_view::npos) return {text, 0};
  LayoutName out{text.substr(0, slash), 0};
  const auto [end, ec] = std::from_chars(text.data() + slash + 1, text.data() + text.size(), out.revision);
  if (ec != std::errc() || end != text.data() + text.size()) return {text, 0};
  return out;
}

std::optional<LayoutName> layout_name(const PlanDevice& device, uint32_t layout) {
  const char* name = device.api->layout_name != nullptr ? device.api->layout_name(layout) : nullptr;
  if (name == nullptr || *name == '\0') return std::nullopt;
  return parse_layout_name(name);
}

Result<uint64_t> packed_bytes(const PlanDevice& device, const Tensor& tensor, uint32_t layout) {
  return packed_bytes(device, tensor.name, describe(tensor), layout);
}

Result<uint64_t> packed_bytes(const PlanDevice& device, std::string_view name, const swy_tensor& desc,
                              uint32_t layout) {
  PluginError e;
  uint64_t size = 0;
  SWY_TRY(e.status(device.api->packed_bytes(&desc, layout, &size, e.get()),
                   fmt::format("{}: packing weight {}", device.name, name)));
  return size;
}

Result<StoredLayout> find_layout(const PlanDevice& device, const Tensor& tensor, uint32_t layout) {
  if (layout == 0) return StoredLayout{&tensor.segments[0], false};
  StoredLayout found;
  const auto name = layout_name(device, layout);
  for (size_t i = 1; name && i < tensor.segments.size(); ++i) {
    const Segment& s = tensor.segments[i];
    if (s.layout != name->name) continue;
    SWY_LET(const uint64_t bytes, packed_bytes(device, tensor, layout));
    if (s.layout_revision == name->revision && s.bytes == bytes) return StoredLayout{&s, false};
    found.stale = true;
  }
  return found;
}

}  // namespace switchyard
