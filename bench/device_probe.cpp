// SPDX-License-Identifier: Apache-2.0
#include "bench/device_probe.h"

#include <algorithm>

#include "core/base/os.h"
#include "core/plugin/buffer.h"

namespace switchyard::bench {

Result<double> probe_device(const PlanDevice& device) {
  constexpr uint64_t kMost = uint64_t{1} << 30, kPage = uint64_t{1} << 20;
  constexpr int kPasses = 8;
  const uint64_t room = device.info.memory_free_bytes == 0 ? kMost : device.info.memory_free_bytes / 4;
  const uint64_t bytes = std::max(std::min(kMost, room) / kPage, uint64_t{1}) * kPage;
  SWY_LET(const DeviceBuffer buffer, DeviceBuffer::allocate(device, SWY_MEMORY_DEVICE, bytes, "measuring its memory"));
  std::byte last{};
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const uint64_t begin = Os::real().now_ns();
    PluginError e;
    SWY_TRY(e.status(device.api->fill_zero(device.handle, buffer.all().buffer, 0, bytes, e.get()), device.name,
                     "zeroing its memory"));
    SWY_TRY(buffer.read(bytes - 1, {&last, 1}));  // it comes after the zeroes
    best = std::max(best, static_cast<double>(bytes) / static_cast<double>(Os::real().now_ns() - begin));
  }
  return best;
}

}  // namespace switchyard::bench
